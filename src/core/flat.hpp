// Every arm's score without a hierarchy: the baseline that the tree has to beat. Feature by feature (an inverted
// index), in stretches of arms whose scores stay in the cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "rows.hpp"

namespace treetop {

// Weights of `rows` (one row an arm, the last column the bias) by feature. A feature that at least one in four arms has
// is a plain row of weights, which the compiler vectorises; any other a list of weights with 16-bit places, stretch
// after stretch, so that the lists of a context are read from front to end. Read-only after construction.
class FlatIndex {
public:
    static constexpr std::size_t stretch = 1 << 15;  // its scores take 128 KB

    FlatIndex(const Rows& rows, int threads)
        : arms_(rows.size()),
          columns_(static_cast<std::size_t>(rows.columns)),
          stretches_((arms_ + stretch - 1) / stretch),
          row_(columns_, -1),
          first_(columns_ + 1, 0),
          end_(columns_ * stretches_, 0) {
        each_weight(rows, threads, [&](std::size_t s, std::size_t, std::int32_t f, float) { ++end_[at(f, s)]; });
        for (std::size_t f = 0; f < columns_; ++f) first_[f + 1] = first_[f] + settle(f);
        place_.resize(first_.back());
        weight_.resize(first_.back());
        each_weight(rows, threads, [&](std::size_t s, std::size_t a, std::int32_t f, float w) {
            if (row_[f] >= 0) {
                plain_[row_[f]][s * stretch + a] = w;
            } else {
                const std::size_t next =
                    first_[f] + end_[at(f, s)]++;  // a beginning before, an end when all are placed
                place_[next] = static_cast<std::uint16_t>(a);
                weight_[next] = w;
            }
        });
    }

    std::size_t arms() const { return arms_; }

    // The k best arms by score, best first, of equals the lower arm; and how many weights were multiplied.
    std::int64_t top(const Row& x, std::size_t k, std::vector<float>& score,
                     std::vector<std::pair<float, std::int32_t>>& best) const {
        std::int64_t work = 0;
        best.clear();
        for (std::size_t s = 0; s < stretches_; ++s) {
            score.assign(std::min(stretch, arms_ - s * stretch), 0.0f);
            for (std::size_t j = 0; j < x.size(); ++j) work += add(s, x.index[j], x.value[j], score);
            work += add(s, static_cast<std::int32_t>(columns_ - 1), 1.0f, score);
            keep(score, static_cast<std::int32_t>(s * stretch), k, best);
        }
        std::sort(best.begin(), best.end(), before);
        return work;
    }

private:
    std::size_t at(std::int32_t f, std::size_t s) const { return static_cast<std::size_t>(f) * stretches_ + s; }

    static bool before(const std::pair<float, std::int32_t>& a, const std::pair<float, std::int32_t>& b) {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    }

    // body(stretch, place in it, feature, weight); a stretch is one thread's alone.
    template <class Body>
    void each_weight(const Rows& rows, int threads, Body&& body) const {
        parallel_for(stretches_, threads, 1, [&](int, std::size_t s) {
            for (std::size_t a = 0; a < std::min(stretch, arms_ - s * stretch); ++a) {
                const Row row = rows[s * stretch + a];
                for (std::size_t j = 0; j < row.size(); ++j) body(s, a, row.index[j], row.value[j]);
            }
        });
    }

    // Turns the counts of a feature into beginnings, or gives it a plain row; how long its list is.
    std::uint32_t settle(std::size_t f) {
        std::uint32_t total = 0;
        for (std::size_t s = 0; s < stretches_; ++s) {
            const std::uint32_t count = std::exchange(end_[f * stretches_ + s], total);
            total += count;
        }
        if (std::size_t{4} * total < arms_) return total;
        row_[f] = static_cast<std::int32_t>(plain_.size());
        plain_.emplace_back(arms_, 0.0f);
        return 0;
    }

    std::int64_t add(std::size_t s, std::int32_t f, float value, std::vector<float>& score) const {
        if (row_[f] >= 0) {
            const float* row = plain_[row_[f]].data() + s * stretch;
            for (std::size_t a = 0; a < score.size(); ++a) score[a] += value * row[a];
            return static_cast<std::int64_t>(score.size());
        }
        const std::size_t first = first_[f] + (s > 0 ? end_[at(f, s - 1)] : 0), end = first_[f] + end_[at(f, s)];
        for (std::size_t i = first; i < end; ++i) score[place_[i]] += value * weight_[i];
        return static_cast<std::int64_t>(end - first);
    }

    // Keeps the k best in a heap with the worst of them in front. Most blocks hold none: one pass without branches
    // says so.
    static void keep(const std::vector<float>& score, std::int32_t begin, std::size_t k,
                     std::vector<std::pair<float, std::int32_t>>& best) {
        constexpr std::size_t block = 256;
        for (std::size_t first = 0; first < score.size(); first += block) {
            const std::size_t end = std::min(score.size(), first + block);
            if (best.size() == k) {
                const float least = best.front().first;
                std::int32_t better = 0;
                for (std::size_t a = first; a < end; ++a) better += score[a] > least;
                if (better == 0) continue;
            }
            for (std::size_t a = first; a < end; ++a) {
                if (best.size() == k) {
                    if (score[a] <= best.front().first) continue;
                    std::pop_heap(best.begin(), best.end(), before);
                    best.pop_back();
                }
                best.emplace_back(score[a], begin + static_cast<std::int32_t>(a));
                std::push_heap(best.begin(), best.end(), before);
            }
        }
    }

    std::size_t arms_, columns_, stretches_;
    std::vector<std::int32_t> row_;  // per feature: its number among the plain rows, or -1
    std::vector<std::vector<float>> plain_;
    std::vector<std::size_t> first_;  // per feature: where its list begins
    std::vector<std::uint32_t> end_;  // per feature and stretch: where its part of the list ends, from there
    std::vector<std::uint16_t> place_;
    std::vector<float> weight_;
};

}  // namespace treetop

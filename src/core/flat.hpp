// Every arm's score without a hierarchy: the baseline that the tree has to beat. Feature by feature (an inverted
// index), in stretches of arms whose scores stay in the cache.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "rows.hpp"

namespace treetop {

// Weights of `rows` (one row an arm, the last column the bias) by stretch and feature. A feature that at least one in
// four arms of a stretch has is a plain row of weights there, which the compiler vectorises; any other a list of 16-bit
// places and their weights. Read-only after construction.
class FlatIndex {
public:
    static constexpr std::size_t stretch = 1 << 15;  // its scores take 128 KB

    FlatIndex(const Rows& rows, int threads) : arms_(rows.size()), columns_(static_cast<std::size_t>(rows.columns)) {
        parts_.resize((arms_ + stretch - 1) / stretch);
        const int workers = worker_count(threads, parts_.size());
        std::vector<std::vector<std::uint32_t>> counts(workers, std::vector<std::uint32_t>(columns_, 0));
        parallel_for(parts_.size(), threads, 1,
                     [&](int worker, std::size_t p) { parts_[p] = build(rows, p, counts[worker]); });
    }

    std::size_t arms() const { return arms_; }

    // The k best arms by score, best first, of equals the lower arm; and how many weights were multiplied.
    std::int64_t top(const Row& x, std::size_t k, std::vector<float>& score,
                     std::vector<std::pair<float, std::int32_t>>& best) const {
        std::int64_t work = 0;
        best.clear();
        for (std::size_t p = 0; p < parts_.size(); ++p) {
            const Part& part = parts_[p];
            const std::size_t n = size(p);
            score.assign(n, 0.0f);
            for (std::size_t j = 0; j < x.size(); ++j) work += add(part, n, x.index[j], x.value[j], score.data());
            work += add(part, n, static_cast<std::int32_t>(columns_ - 1), 1.0f, score.data());
            keep(score, static_cast<std::int32_t>(p * stretch), k, best);
        }
        std::sort(best.begin(), best.end(), before);
        return work;
    }

private:
    struct Part {
        std::vector<std::uint32_t> first;  // per feature: where its list begins; one more than there are features
        std::vector<std::uint32_t> row;    // per feature: 1 + its number among the plain rows, or 0
        std::vector<std::uint16_t> place;
        std::vector<float> weight;
        std::vector<float> rows;
    };

    std::size_t size(std::size_t p) const { return std::min(stretch, arms_ - p * stretch); }

    static bool before(const std::pair<float, std::int32_t>& a, const std::pair<float, std::int32_t>& b) {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    }

    Part build(const Rows& rows, std::size_t p, std::vector<std::uint32_t>& count) const {
        const std::size_t begin = p * stretch, n = size(p);
        Part part;
        std::fill(count.begin(), count.end(), 0);
        for (std::size_t a = 0; a < n; ++a)
            for (const std::int32_t f : rows[begin + a].index) ++count[f];
        part.first.assign(columns_ + 1, 0);
        part.row.assign(columns_, 0);
        std::uint32_t plain = 0;
        for (std::size_t f = 0; f < columns_; ++f) {
            if (4 * count[f] >= n) part.row[f] = ++plain;
            part.first[f + 1] = part.first[f] + (part.row[f] ? 0 : count[f]);
        }
        part.place.resize(part.first.back());
        part.weight.resize(part.first.back());
        part.rows.assign(plain * n, 0.0f);
        std::copy(part.first.begin(), part.first.end() - 1, count.begin());
        for (std::size_t a = 0; a < n; ++a) {
            const Row row = rows[begin + a];
            for (std::size_t j = 0; j < row.size(); ++j) {
                const std::int32_t f = row.index[j];
                if (part.row[f]) {
                    part.rows[(part.row[f] - 1) * n + a] = row.value[j];
                } else {
                    part.place[count[f]] = static_cast<std::uint16_t>(a);
                    part.weight[count[f]++] = row.value[j];
                }
            }
        }
        return part;
    }

    static std::int64_t add(const Part& part, std::size_t n, std::int32_t f, float value, float* score) {
        if (part.row[f]) {
            const float* row = part.rows.data() + (part.row[f] - 1) * n;
            for (std::size_t a = 0; a < n; ++a) score[a] += value * row[a];
            return static_cast<std::int64_t>(n);
        }
        const std::uint32_t first = part.first[f], end = part.first[f + 1];
        for (std::uint32_t i = first; i < end; ++i) score[part.place[i]] += value * part.weight[i];
        return end - first;
    }

    // Keeps the k best in a heap with the worst of them in front.
    static void keep(const std::vector<float>& score, std::int32_t begin, std::size_t k,
                     std::vector<std::pair<float, std::int32_t>>& best) {
        for (std::size_t a = 0; a < score.size(); ++a) {
            const std::pair<float, std::int32_t> found{score[a], begin + static_cast<std::int32_t>(a)};
            if (best.size() < k) {
                best.push_back(found);
                std::push_heap(best.begin(), best.end(), before);
            } else if (found.first > best.front().first) {
                std::pop_heap(best.begin(), best.end(), before);
                best.back() = found;
                std::push_heap(best.begin(), best.end(), before);
            }
        }
    }

    std::size_t arms_, columns_;
    std::vector<Part> parts_;
};

}  // namespace treetop

// Mean rewards that are linear and sparse: one ridge regression an arm over all rows of a dataset, on few features of
// its own (the realizable setting of Section 5 where a dense matrix of weights is too large). Knows nothing of bandits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fit.hpp"
#include "parallel.hpp"
#include "rows.hpp"

namespace treetop {

// A dataset seen three ways: its columns (one row a feature, of contexts), its contexts, and the contexts of each arm
// with their labels.
struct Labelled {
    Rows contexts, columns, arms;
};

// Sum and sum of squares of every feature: the bias' row of the Gram matrix, and its diagonal.
struct Moments {
    std::vector<double> sum, square;

    explicit Moments(const Rows& columns) : sum(columns.size(), 0.0), square(columns.size(), 0.0) {
        for (std::size_t f = 0; f < columns.size(); ++f)
            for (const double v : columns[f].value) {
                sum[f] += v;
                square[f] += v * v;
            }
    }
};

// What one thread needs to fit one arm after another.
class TruthWorker {
public:
    TruthWorker(const Labelled& data, const Moments& moments, double ridge, std::size_t kept)
        : data_(data),
          moments_(moments),
          ridge_(ridge),
          kept_(kept),
          local_(data.contexts.columns),
          place_(data.contexts.size(), -1) {}

    // Adds the weights of an arm in order of features, the bias last. Without a label they are all 0.
    void fit(std::size_t arm, Part& out) {
        const Row mine = data_.arms[arm];
        if (mine.size() == 0) return;
        choose(mine);
        gram();
        solve(arm);
        out.make_room(chosen_.size() + 1);
        for (std::size_t j = 0; j < chosen_.size(); ++j) out.push(chosen_[j].feature, target_[j], 0.0, arm);
        out.push(static_cast<std::int32_t>(data_.contexts.columns), target_.back(), 0.0, arm);
    }

private:
    struct Chosen {
        double gain, target;
        std::int32_t feature;
    };
    struct Entry {
        std::int32_t column;
        float value;
    };

    // The features that would lower the loss most if they stood alone beside a mean: (z'(y - mean of y))^2 / (z'z +
    // ridge), among those of the arm's own contexts. Of equals the lower feature.
    void choose(const Row& mine) {
        local_.clear();
        sums_.clear();
        double total = 0;
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const Row x = data_.contexts[mine.index[i]];
            total += mine.value[i];
            for (std::size_t j = 0; j < x.size(); ++j) {
                const auto at = static_cast<std::size_t>(local_(x.index[j]));
                if (at == sums_.size()) sums_.push_back(0);
                sums_[at] += static_cast<double>(mine.value[i]) * x.value[j];
            }
        }
        const double mean = total / static_cast<double>(data_.contexts.size());
        chosen_.clear();
        for (std::size_t at = 0; at < sums_.size(); ++at) {
            const std::int32_t f = local_.features()[at];
            const double with = sums_[at] - mean * moments_.sum[f];
            chosen_.push_back({with * with / (moments_.square[f] + ridge_), sums_[at], f});
        }
        const auto better = [](const Chosen& a, const Chosen& b) {
            return a.gain > b.gain || (a.gain == b.gain && a.feature < b.feature);
        };
        if (chosen_.size() > kept_) {
            std::nth_element(chosen_.begin(), chosen_.begin() + static_cast<std::ptrdiff_t>(kept_), chosen_.end(),
                             better);
            chosen_.resize(kept_);
        }
        std::sort(chosen_.begin(), chosen_.end(),
                  [](const Chosen& a, const Chosen& b) { return a.feature < b.feature; });
        target_.clear();
        for (const Chosen& c : chosen_) target_.push_back(c.target);
        target_.push_back(total);
    }

    // Z'Z of the chosen features and the bias over all contexts, the upper triangle: the chosen columns are turned into
    // rows, and every row adds its pairs.
    void gram() {
        const std::size_t m = chosen_.size() + 1;
        U_.assign(m * m, 0.0);
        count_.clear();
        touched_.clear();
        for (const Chosen& c : chosen_)
            for (const std::int32_t row : data_.columns[c.feature].index) {
                if (place_[row] < 0) {
                    place_[row] = static_cast<std::int32_t>(touched_.size());
                    touched_.push_back(row);
                    count_.push_back(0);
                }
                ++count_[place_[row]];
            }
        std::size_t sum = 0;
        for (std::size_t& n : count_) sum += std::exchange(n, sum);  // where a row begins, soon where it ends
        entries_.resize(sum);
        for (std::size_t j = 0; j < chosen_.size(); ++j) {
            const Row column = data_.columns[chosen_[j].feature];
            for (std::size_t i = 0; i < column.size(); ++i)
                entries_[count_[place_[column.index[i]]]++] = {static_cast<std::int32_t>(j), column.value[i]};
        }
        for (std::size_t row = 0, first = 0; row < count_.size(); first = count_[row++])
            for (std::size_t p = first; p < count_[row]; ++p) {
                const double value = entries_[p].value;
                double* const above = &U_[entries_[p].column * m];
                for (std::size_t q = p; q < count_[row]; ++q) above[entries_[q].column] += value * entries_[q].value;
            }
        for (const std::int32_t row : touched_) place_[row] = -1;
        for (std::size_t j = 0; j + 1 < m; ++j) U_[j * m + m - 1] = moments_.sum[chosen_[j].feature];
        U_[m * m - 1] = static_cast<double>(data_.contexts.size());
        for (std::size_t j = 0; j < m; ++j) U_[j * m + j] += ridge_;
    }

    // (Z'Z + ridge I) w = Z'y by Cholesky; the weights take the place of the targets.
    void solve(std::size_t arm) {
        const std::size_t m = target_.size();
        for (std::size_t k = 0; k < m; ++k) {
            double* const row = &U_[k * m];
            const double earlier = k + 1 < m ? moments_.square[chosen_[k].feature] + ridge_
                                             : static_cast<double>(data_.contexts.size()) + ridge_;
            if (!(row[k] > 1e-12 * earlier))
                throw std::invalid_argument("arm " + std::to_string(arm) + ": a ridge of " + std::to_string(ridge_) +
                                            " is lost in rounding; it must be larger");
            row[k] = std::sqrt(row[k]);
            for (std::size_t i = k + 1; i < m; ++i) row[i] /= row[k];
            for (std::size_t j = k + 1; j < m; ++j)
                for (std::size_t i = j; i < m; ++i) U_[j * m + i] -= row[i] * row[j];
            target_[k] /= row[k];
            for (std::size_t i = k + 1; i < m; ++i) target_[i] -= row[i] * target_[k];
        }
        for (std::size_t i = m; i-- > 0;) {
            for (std::size_t k = i + 1; k < m; ++k) target_[i] -= U_[i * m + k] * target_[k];
            target_[i] /= U_[i * m + i];
        }
    }

    const Labelled& data_;
    const Moments& moments_;
    double ridge_;
    std::size_t kept_;
    Renumbering local_;
    std::vector<std::int32_t> place_;  // per context: its number among the touched ones, or -1
    std::vector<std::int32_t> touched_;
    std::vector<std::size_t> count_;
    std::vector<Entry> entries_;
    std::vector<Chosen> chosen_;
    std::vector<double> sums_, target_, U_;
};

// One row of at most `kept` weights and a bias an arm. The same on any number of threads.
inline Weights fit_truth(const Labelled& data, double ridge, std::size_t kept, int threads, Watch& watch) {
    constexpr std::size_t stretch = 256;  // arms a part: parts are put together in their order
    const std::size_t arms = data.arms.size(), parts = (arms + stretch - 1) / stretch;
    const Moments moments(data.columns);
    std::vector<TruthWorker> workers;
    for (int w = 0; w < worker_count(threads, parts); ++w) workers.emplace_back(data, moments, ridge, kept);
    std::vector<Part> found(parts);
    std::vector<std::size_t> length(arms, 0);
    watch.begin(static_cast<std::int64_t>(arms));
    parallel_for(parts, threads, 1, [&](int worker, std::size_t p) {
        for (std::size_t a = p * stretch; a < std::min(arms, (p + 1) * stretch); ++a) {
            const std::size_t size = found[p].size();
            workers[worker].fit(a, found[p]);
            length[a] = found[p].size() - size;
            watch.advance(1);
        }
    });
    Weights out;
    for (std::size_t p = 0; p < parts; ++p) {
        std::size_t first = 0;
        for (std::size_t a = p * stretch; a < std::min(arms, (p + 1) * stretch); first += length[a++])
            out.append(found[p].row(first, length[a]));
        found[p] = {};
    }
    return out;
}

// (rows, k): [x; 1] . w for the arms of each row, features in ascending order and the bias last; NaN for arm -1. Arm by
// arm, since weights have more nonzeros than contexts: those of an arm are spread out once for all that ask for it.
inline std::vector<double> means(const Rows& contexts, const Rows& weights, std::span<const std::int64_t> rows,
                                 std::span<const std::int32_t> arms, int threads) {
    const std::size_t k = rows.empty() ? 0 : arms.size() / rows.size();
    std::vector<std::size_t> start(weights.size() + 1, 0), asked(arms.size());
    for (const std::int32_t arm : arms)
        if (arm >= 0) ++start[static_cast<std::size_t>(arm) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<std::size_t> next(start.begin(), start.end() - 1);
    for (std::size_t s = 0; s < arms.size(); ++s)
        if (arms[s] >= 0) asked[next[static_cast<std::size_t>(arms[s])]++] = s;
    std::vector<double> out(arms.size(), std::numeric_limits<double>::quiet_NaN());
    std::vector<std::vector<float>> dense(worker_count(threads, weights.size()),
                                          std::vector<float>(static_cast<std::size_t>(weights.columns), 0.0f));
    parallel_for(weights.size(), threads, 16, [&](int worker, std::size_t arm) {
        if (start[arm] == start[arm + 1]) return;
        std::vector<float>& w = dense[worker];
        const Row own = weights[arm];
        for (std::size_t j = 0; j < own.size(); ++j) w[own.index[j]] = own.value[j];
        for (std::size_t a = start[arm]; a < start[arm + 1]; ++a) {
            const Row x = contexts[static_cast<std::size_t>(rows[asked[a] / k])];
            double sum = 0;
            for (std::size_t j = 0; j < x.size(); ++j) sum += static_cast<double>(x.value[j]) * w[x.index[j]];
            out[asked[a]] = sum + w.back();
        }
        for (const std::int32_t f : own.index) w[f] = 0;
    });
    return out;
}

}  // namespace treetop

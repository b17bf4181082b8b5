// What arms cover, and the bonus of a slate for covering much: monotone and submodular. Knows nothing of scores or
// draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tree.hpp"

namespace treetop {

// For each node, then each arm: the groups that it covers and how much of each, in [0, 1]. A node covers what one of
// its arms covers on average.
struct Coverage {
    std::vector<std::int64_t> start;
    std::vector<std::int32_t> group;
    std::vector<float> share;
    std::size_t groups = 0, nodes = 0;

    bool empty() const { return start.empty(); }
    std::size_t row(bool node, std::int32_t id) const { return static_cast<std::size_t>(id) + (node ? 0 : nodes); }
};

// From what each arm covers.
inline Coverage make_coverage(const Layout& tree, std::span<const std::int64_t> start,
                              std::span<const std::int32_t> group, std::span<const float> share, std::int64_t groups) {
    const std::size_t A = tree.arms(), N = tree.nodes();
    if (start.size() != A + 1 || start[0] != 0 || start[A] != static_cast<std::int64_t>(group.size()) ||
        group.size() != share.size())
        throw std::invalid_argument("coverage of " + std::to_string(start.size()) + " rows, " +
                                    std::to_string(group.size()) + " groups and " + std::to_string(share.size()) +
                                    " shares does not fit " + std::to_string(A) + " arms");
    for (std::size_t a = 0; a < A; ++a)
        if (start[a] > start[a + 1]) throw std::invalid_argument("coverage: starts of rows must not fall");
    for (std::size_t j = 0; j < group.size(); ++j)
        if (group[j] < 0 || group[j] >= groups || !(share[j] >= 0 && share[j] <= 1))
            throw std::invalid_argument("coverage has group " + std::to_string(group[j]) + " of " +
                                        std::to_string(groups) + " with share " + std::to_string(share[j]) +
                                        "; shares lie in [0, 1]");
    Coverage out;
    out.groups = static_cast<std::size_t>(groups);
    out.nodes = N;
    out.start.reserve(N + A + 1);
    out.start.push_back(0);
    std::vector<double> sum(out.groups, 0.0);
    std::vector<std::int32_t> met;
    for (std::size_t node = 0; node < N; ++node) {
        met.clear();
        for (std::int32_t p = tree.begin[node]; p < tree.end[node]; ++p)
            for (std::int64_t j = start[tree.arm_at[p]]; j < start[tree.arm_at[p] + 1]; ++j) {
                if (sum[group[j]] == 0 && share[j] > 0) met.push_back(group[j]);
                sum[group[j]] += share[j];
            }
        for (const std::int32_t g : met) {
            out.group.push_back(g);
            out.share.push_back(static_cast<float>(sum[g] / (tree.end[node] - tree.begin[node])));
            sum[g] = 0;
        }
        out.start.push_back(static_cast<std::int64_t>(out.group.size()));
    }
    const std::int64_t shift = out.start.back();
    out.group.insert(out.group.end(), group.begin(), group.end());
    out.share.insert(out.share.end(), share.begin(), share.end());
    for (std::size_t a = 0; a < A; ++a) out.start.push_back(shift + start[a + 1]);
    return out;
}

// weight * sum over groups of (1 - product over the slate of (1 - share)): what the slate gains by one more candidate.
class Bonus {
public:
    void begin(const Coverage* coverage, double weight) {
        weight_ = coverage && !coverage->empty() ? weight : 0;
        if (!on()) return;
        coverage_ = coverage;
        left_.assign(coverage->groups, 1.0);
    }

    bool on() const { return weight_ > 0; }

    double gain(std::size_t row) const {
        double covers = 0;
        for (auto j = coverage_->start[row]; j < coverage_->start[row + 1]; ++j)
            covers += static_cast<double>(coverage_->share[j]) * left_[coverage_->group[j]];
        return weight_ * covers;
    }

    void cover(std::size_t row) {
        for (auto j = coverage_->start[row]; j < coverage_->start[row + 1]; ++j)
            left_[coverage_->group[j]] *= 1 - static_cast<double>(coverage_->share[j]);
    }

    std::size_t row(bool node, std::int32_t id) const { return coverage_->row(node, id); }

private:
    const Coverage* coverage_ = nullptr;
    double weight_ = 0;
    std::vector<double> left_;  // of each group, what the slate does not cover yet
};

}  // namespace treetop

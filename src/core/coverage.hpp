// What arms cover, and what covering much is worth to a slate: monotone and submodular. Knows nothing of draws.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
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
    double saturation = 0;  // which part of a group's reward one of its arms takes from those below, if it earns 1

    bool empty() const { return start.empty(); }
    std::size_t row(bool node, std::int32_t id) const { return static_cast<std::size_t>(id) + (node ? 0 : nodes); }
};

// From what each arm covers.
inline Coverage make_coverage(const Layout& tree, std::span<const std::int64_t> start,
                              std::span<const std::int32_t> group, std::span<const float> share, std::int64_t groups,
                              double saturation = 0) {
    const std::size_t A = tree.arms(), N = tree.nodes();
    if (start.size() != A + 1 || start[0] != 0 || start[A] != static_cast<std::int64_t>(group.size()) ||
        group.size() != share.size())
        throw std::invalid_argument("coverage of " + std::to_string(start.empty() ? 0 : start.size() - 1) + " arms, " +
                                    std::to_string(group.size()) + " groups and " + std::to_string(share.size()) +
                                    " shares does not fit " + std::to_string(A) + " arms");
    for (std::size_t a = 0; a < A; ++a)
        if (start[a] > start[a + 1]) throw std::invalid_argument("coverage: starts of rows must not fall");
    for (std::size_t j = 0; j < group.size(); ++j)
        if (group[j] < 0 || group[j] >= groups || !(share[j] >= 0 && share[j] <= 1))
            throw std::invalid_argument("coverage has group " + std::to_string(group[j]) + " of " +
                                        std::to_string(groups) + " with share " + std::to_string(share[j]) +
                                        "; shares lie in [0, 1]");
    if (groups < 1 || groups > std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument("groups is " + std::to_string(groups) + "; it must lie in [1, 2147483647]");
    if (!(saturation >= 0 && saturation <= 1))
        throw std::invalid_argument("saturation is " + std::to_string(saturation) + "; it must lie in [0, 1]");
    Coverage out;
    out.saturation = saturation;
    out.groups = static_cast<std::size_t>(groups);
    out.nodes = N;
    out.start.reserve(N + A + 1);
    out.start.push_back(0);
    // Arms are looked at once, in their leaves: a node adds up what its children have, which come after it.
    struct Sum {
        std::int32_t group;
        double share;
    };
    std::vector<std::vector<Sum>> below(N);
    std::vector<double> sum(out.groups, 0.0);
    std::vector<std::int32_t> met;
    const auto add = [&](std::int32_t g, double more) {
        if (sum[g] == 0 && more > 0) met.push_back(g);
        sum[g] += more;
    };
    for (auto node = static_cast<std::int32_t>(N) - 1; node >= 0; --node) {
        met.clear();
        for (const std::int32_t child : tree.children(node))
            for (const Sum& each : below[child]) add(each.group, each.share);
        if (tree.leaf(node))
            for (std::int32_t p = tree.begin[node]; p < tree.end[node]; ++p)
                for (std::int64_t j = start[tree.arm_at[p]]; j < start[tree.arm_at[p] + 1]; ++j)
                    add(group[j], share[j]);
        below[node].reserve(met.size());
        for (const std::int32_t g : met) below[node].push_back({g, std::exchange(sum[g], 0.0)});
    }
    for (std::size_t node = 0; node < N; ++node) {
        for (const Sum& each : below[node]) {
            out.group.push_back(each.group);
            out.share.push_back(static_cast<float>(each.share / (tree.end[node] - tree.begin[node])));
        }
        out.start.push_back(static_cast<std::int64_t>(out.group.size()));
    }
    const std::int64_t shift = out.start.back();
    out.group.insert(out.group.end(), group.begin(), group.end());
    out.share.insert(out.share.end(), share.begin(), share.end());
    for (std::size_t a = 0; a < A; ++a) out.start.push_back(shift + start[a + 1]);
    return out;
}

// What a candidate is worth to a slate, beside its score: scores saturate, and covering much has a bonus.
//
//     score * product over groups of (1 - share * (1 - free)),  free = product over the slate of (1 - saturation *
//     share
//     * score in [0, 1]);   + weight * sum over groups of share * left,  left = product over the slate of (1 - share)
//
// With one group an arm, the first adds up to (1 - product of (1 - saturation * score)) / saturation for each group,
// whatever the order: like the second it is monotone and submodular.
class Bonus {
public:
    void begin(const Coverage* coverage, double weight) {
        rewind(0);
        on_ = coverage && !coverage->empty() && (weight > 0 || coverage->saturation > 0);
        if (!on_) return;
        coverage_ = coverage;
        weight_ = weight;
        if (uncovered_.size() != coverage->groups) uncovered_.assign(coverage->groups, {});
    }

    bool on() const { return on_; }

    double worth(std::size_t row, double score) const {
        double covers = 0, fresh = 1;
        for (auto j = coverage_->start[row]; j < coverage_->start[row + 1]; ++j) {
            const Uncovered& of = uncovered_[coverage_->group[j]];
            const double share = coverage_->share[j];
            covers += share * of.left;
            fresh *= 1 - share * (1 - of.free);
        }
        return (score > 0 ? score * fresh : score) + weight_ * covers;
    }

    void cover(std::size_t row, double score) {
        const double takes = coverage_->saturation * std::clamp(score, 0.0, 1.0);
        for (auto j = coverage_->start[row]; j < coverage_->start[row + 1]; ++j) {
            Uncovered& of = uncovered_[coverage_->group[j]];
            changes_.push_back({coverage_->group[j], of});
            const double share = coverage_->share[j];
            of.left *= 1 - share;
            of.free *= 1 - takes * share;
        }
    }

    // How much was covered, and back to that.
    std::size_t mark() const { return changes_.size(); }

    void rewind(std::size_t mark) {
        for (; changes_.size() > mark; changes_.pop_back()) uncovered_[changes_.back().group] = changes_.back().before;
    }

    std::size_t row(bool node, std::int32_t id) const { return coverage_->row(node, id); }

private:
    struct Uncovered {
        double left = 1, free = 1;
    };
    struct Change {
        std::int32_t group;
        Uncovered before;
    };

    const Coverage* coverage_ = nullptr;
    double weight_ = 0;
    bool on_ = false;
    std::vector<Uncovered> uncovered_;  // of each group
    std::vector<Change> changes_;       // in order, so that few of many groups have to be set back
};

}  // namespace treetop

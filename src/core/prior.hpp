// What a score starts from before the reward model's own weights, and how little is known about an arm.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tree.hpp"

namespace treetop {

// The mean reward by routing score, pooled over all arms, and that of pruned nodes. Empty: everything starts from 0.
struct Prior {
    std::vector<float> arms;   // means at evenly spaced values of slack(route), linear in between
    float nodes = 0;           // one mean, whatever the route
    std::vector<float> doubt;  // of each arm, in tree order: 1 / (1 + trials)
    std::vector<float> below;  // of each node: what a draw through it brings later, the mean of the arms below
    std::vector<char> open;    // of each node: on the way to the hall, the leaf that every search ends with
    static constexpr double widest = 4;
    static constexpr float least = 1e-4f, lasting = 0.1f;

    bool empty() const { return arms.empty(); }

    bool leads_to_hall(std::int32_t node) const { return !open.empty() && open[node] == 1; }
    bool near_hall(std::int32_t node) const { return !open.empty() && open[node] != 0; }

    // How many leaves a beam ends with. Nodes have no regressors then: what those cost is spent on arms.
    static std::int64_t leaves(std::int64_t beam) { return beam + beam / 5 * 2 + beam % 5 * 2 / 5; }

    // The cube root of -log g: for linear routing on one level, 1 - w.[x; 1].
    static double slack(double route) { return std::min(std::cbrt(-route), widest); }

    float at(double route) const {
        const double place = slack(route) / widest * static_cast<double>(arms.size() - 1);
        const auto i = std::min(static_cast<std::size_t>(place), arms.size() - 2);
        const auto part = static_cast<float>(place - static_cast<double>(i));
        return arms[i] + part * (arms[i + 1] - arms[i]);
    }

    // What showing an arm brings later: a tenth of what arms at its place earn, over all that was tried of it.
    static float promise(float mean, float doubt) { return lasting * std::max(mean, least) * doubt; }

    // What a draw through a node brings later.
    float promise_below(std::int32_t node) const { return empty() ? 0.0f : std::max(below[node], lasting * least); }
};

// Of each node the mean over the arms below it, which are given by id.
inline std::vector<float> means_below(const Layout& tree, std::span<const float> of_arm) {
    std::vector<double> until{0};
    for (const std::int32_t arm : tree.arm_at) until.push_back(until.back() + of_arm[arm]);
    std::vector<float> means;
    for (std::size_t node = 0; node < tree.nodes(); ++node) {
        const double arms = std::max(1, tree.end[node] - tree.begin[node]);
        means.push_back(static_cast<float>((until[tree.end[node]] - until[tree.begin[node]]) / arms));
    }
    return means;
}

// `means`: those of arms, that of nodes, and a number for whoever adds arms; `trials` and `hope`, which is what a draw
// through a node brings later if it is this arm: of each arm by id. All empty: no prior.
inline Prior make_prior(const Layout& tree, std::span<const float> means, std::span<const std::int32_t> trials,
                        std::span<const float> hope, std::span<const std::int32_t> hall,
                        std::span<const std::int32_t> beside) {
    Prior prior;
    if (means.empty() && trials.empty()) return prior;
    if (means.size() < 4 || trials.size() != tree.arms() || hope.size() != tree.arms())
        throw std::invalid_argument("a prior of " + std::to_string(means.size()) + " means and trials of " +
                                    std::to_string(trials.size()) + " arms do not fit " + std::to_string(tree.arms()) +
                                    " arms");
    for (const float mean : means)
        if (!std::isfinite(mean)) throw std::invalid_argument("a mean of the prior is " + std::to_string(mean));
    for (const std::int32_t n : trials)
        if (n < 0) throw std::invalid_argument("an arm has " + std::to_string(n) + " trials");
    prior.arms.assign(means.begin(), means.end() - 2);
    prior.nodes = means[means.size() - 2];
    prior.doubt.reserve(tree.arms());
    for (const std::int32_t arm : tree.arm_at) prior.doubt.push_back(1.0f / (1.0f + static_cast<float>(trials[arm])));
    prior.below = means_below(tree, hope);
    if (!hall.empty()) prior.open.assign(tree.nodes(), 0);
    for (const std::int32_t node : hall) prior.open.at(node) = 1;
    for (const std::int32_t node : beside) prior.open.at(node) = 2;
    return prior;
}

}  // namespace treetop

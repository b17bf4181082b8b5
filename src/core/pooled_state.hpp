// What treetop's learner adds to a score: the mean reward of arms with that routing score, and the value of exploring.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "pooled_mean.hpp"
#include "rows.hpp"
#include "tree.hpp"

namespace treetop {

// Scores of an arm start from `means` at its route, those of a pruned node from `node_mean`. Empty: all start from 0.
struct PooledState {
    std::array<float, 3> weights{1, 1, 1};  // of the components: pooled mean, the arm's regressor, the owner's measure
    std::vector<float> means;               // at evenly spaced values of slack(route) in [0, 4], linear in between
    float node_mean = 0;                    // one mean, whatever the route
    std::vector<float> inverse_count;       // of each arm, in tree order: 1 / (1 + samples)
    std::vector<float> node_value;          // of each node: the mean trial value of the arms below it
    std::vector<std::int32_t> new_trials;   // of each arm, in tree order: how often one that was added was shown,
                                            // -1 for the others; empty if none was added
    double exploration_net = 0;             // what found arms have earned less what draws cost, per reward of all

    bool empty() const { return means.empty(); }

    float mean(double route) const { return mean_at(means, route); }

    // What one more sample of an arm is worth: little where there are many.
    static float exploration_value(float score, float inverse_count) { return std::max(score, 0.0f) * inverse_count; }

    // What a draw through a node brings later: the trial value of its arms, on average.
    float exploration_value(std::int32_t node) const { return empty() ? 0.0f : node_value[node]; }
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

// Of each arm by id: `sample_count`, `trial_value` (the expected later gain of showing it once) and `new_trials` (how
// often an arm that was added was shown; -1 for the others).
inline PooledState make_pooled_state(const Layout& tree, std::span<const float> means, double node_mean,
                                     std::span<const std::int32_t> sample_count, std::span<const float> trial_value,
                                     std::span<const std::int32_t> new_trials) {
    if (means.size() < 2 || sample_count.size() != tree.arms() || trial_value.size() != tree.arms() ||
        new_trials.size() != tree.arms())
        throw std::invalid_argument(std::to_string(means.size()) + " pooled means, " +
                                    std::to_string(sample_count.size()) + " counts of samples, " +
                                    std::to_string(trial_value.size()) + " trial values and " +
                                    std::to_string(new_trials.size()) + " counts of trials do not fit " +
                                    std::to_string(tree.arms()) + " arms");
    const auto finite = [](const char* what, double value) {
        if (!std::isfinite(value)) throw std::invalid_argument(std::string(what) + " is " + std::to_string(value));
    };
    for (const float mean : means) finite("a pooled mean", mean);
    for (const float value : trial_value) finite("a trial value", value);
    finite("the mean of nodes", node_mean);
    for (const std::int32_t n : sample_count)
        if (n < 0) throw std::invalid_argument("an arm has " + std::to_string(n) + " samples");
    PooledState pooled;
    pooled.means.assign(means.begin(), means.end());
    pooled.node_mean = static_cast<float>(node_mean);
    pooled.inverse_count.reserve(tree.arms());
    for (std::size_t p = 0; p < tree.arms(); ++p) {
        const std::int32_t arm = tree.arm_at[p];
        pooled.inverse_count.push_back(1.0f / (1.0f + static_cast<float>(sample_count[arm])));
    }
    if (std::ranges::any_of(new_trials, [](std::int32_t n) { return n >= 0; }))
        for (const std::int32_t arm : tree.arm_at) pooled.new_trials.push_back(new_trials[arm]);
    pooled.node_value = means_below(tree, trial_value);
    return pooled;
}

}  // namespace treetop

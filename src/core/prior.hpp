// What a score starts from before the reward model's own weights, and how little is known about an arm.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "rows.hpp"
#include "tree.hpp"

namespace treetop {

struct Promise {
    float promise = 0, weight = 0;  // as of a Candidate
};

// The mean reward by routing score, pooled over all arms and over all pruned nodes. Empty: everything starts from 0.
struct Prior {
    std::vector<float> arms, nodes;  // means at evenly spaced values of slack(route), linear in between
    std::vector<float> doubt;        // of each arm, in tree order: 1 / (1 + trials)
    std::vector<float> below;        // of each node: what a draw through it brings later, the mean of the arms below
    std::vector<float> lost;   // of each feature and the bias: what a draw promises where arms that fell were wanted
    std::vector<float> heirs;  // of each node: times what of that, the mean of the arms below
    std::vector<float> suspected;  // the same of each arm, in tree order
    float most = 0;                // that it promises anywhere
    std::vector<char> open;        // of each node: on the way to the hall, the leaf that every search ends with
    static constexpr double widest = 4;
    static constexpr float least = 1e-4f, lasting = 0.1f;

    bool empty() const { return arms.empty(); }

    bool leads_to_hall(std::int32_t node) const { return !open.empty() && open[node] == 1; }
    bool near_hall(std::int32_t node) const { return !open.empty() && open[node] != 0; }

    // How many leaves a beam ends with. Nodes have no regressors then: what those cost is spent on arms.
    static std::int64_t leaves(std::int64_t beam) { return beam + beam / 5 * 2 + beam % 5 * 2 / 5; }

    // The cube root of -log g: for linear routing on one level, 1 - w.[x; 1].
    static double slack(double route) { return std::min(std::cbrt(-route), widest); }

    static float at(const std::vector<float>& table, double route) {
        if (table.empty()) return 0;
        const double place = slack(route) / widest * static_cast<double>(table.size() - 1);
        const auto i = std::min(static_cast<std::size_t>(place), table.size() - 2);
        const auto part = static_cast<float>(place - static_cast<double>(i));
        return table[i] + part * (table[i + 1] - table[i]);
    }

    // What showing an arm brings later: a tenth of what arms at its place earn, over all that was tried of it.
    static float promise(float mean, float doubt) { return lasting * std::max(mean, least) * doubt; }

    // What a context misses since arms fell.
    float missed(const Row& x) const {
        float sum = 0;
        if (!lost.empty())
            for (std::size_t j = 0; j < x.size(); ++j) sum += lost[x.index[j]] * x.value[j];
        return sum > 0 ? std::min(sum, most) : 0;
    }

    // What a draw through a node brings later in a context that misses so much, and its weight: arms apart are tried
    // node by node, as they were put together, but heirs may be anywhere, and a node counts for every arm below it.
    Promise promise_below(std::int32_t node, float missed, std::int32_t count) const {
        if (empty()) return {};
        const float hope = std::max(below[node], lasting * least), heir = missed > 0 ? missed * heirs[node] : 0;
        return {hope + heir, hope + heir * static_cast<float>(count)};
    }
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

// `tables`: as many means for arms, then for nodes; `trials` and `hope`, which is what a draw through a node brings
// later if it is this arm: of each arm by id. All empty: no prior.
inline Prior make_prior(const Layout& tree, std::span<const float> tables, std::span<const std::int32_t> trials,
                        std::span<const float> hope, std::span<const std::int32_t> hall,
                        std::span<const std::int32_t> beside, std::span<const float> lost,
                        std::span<const float> heirs) {
    Prior prior;
    if (tables.empty() && trials.empty()) return prior;
    if (tables.size() < 4 || trials.size() != tree.arms() || hope.size() != tree.arms())
        throw std::invalid_argument("a prior of " + std::to_string(tables.size()) + " means and trials of " +
                                    std::to_string(trials.size()) + " arms do not fit " + std::to_string(tree.arms()) +
                                    " arms");
    for (const float mean : tables)
        if (!std::isfinite(mean)) throw std::invalid_argument("a mean of the prior is " + std::to_string(mean));
    for (const std::int32_t n : trials)
        if (n < 0) throw std::invalid_argument("an arm has " + std::to_string(n) + " trials");
    const auto half = static_cast<std::ptrdiff_t>(tables.size() / 2);
    prior.arms.assign(tables.begin(), tables.begin() + half);
    prior.nodes.assign(tables.begin() + half, tables.begin() + 2 * half);
    prior.doubt.reserve(tree.arms());
    for (const std::int32_t arm : tree.arm_at) prior.doubt.push_back(1.0f / (1.0f + static_cast<float>(trials[arm])));
    prior.below = means_below(tree, hope);
    if (!lost.empty()) {
        if (heirs.size() != tree.arms())
            throw std::invalid_argument(std::to_string(heirs.size()) + " heirs for " + std::to_string(tree.arms()) +
                                        " arms");
        prior.lost.assign(lost.begin(), lost.end() - 1);
        prior.most = lost.back();
        prior.heirs = means_below(tree, heirs);
        for (const std::int32_t arm : tree.arm_at) prior.suspected.push_back(heirs[arm]);
    }
    if (!hall.empty()) prior.open.assign(tree.nodes(), 0);
    for (const std::int32_t node : hall) prior.open.at(node) = 1;
    for (const std::int32_t node : beside) prior.open.at(node) = 2;
    return prior;
}

}  // namespace treetop

// What a score starts from before the reward model's own weights, and how little is known about an arm.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "eligible.hpp"
#include "rows.hpp"
#include "tree.hpp"

namespace treetop {

// An arm that stopped earning: what drawing its heir promises at most, and which arms are known not to be that.
struct Fallen {
    float most = 0;
    std::vector<std::int32_t> ruled;  // positions, ascending
    std::vector<bool> out;            // the same, one flag a position

    Eligible suspects() const { return {Eligible::Kind::except, ruled, nullptr}; }
    bool suspects(std::int32_t position) const { return !out[position]; }
};

// What drawing a suspect promises in a context, and whose heir that may be: of the arm which it misses most.
struct Missed {
    float promise = 0;
    const Fallen* arm = nullptr;
};

struct Promise {
    float promise = 0, weight = 0, heirs = 0;  // as of a Candidate
};

// The mean reward by routing score, pooled over all arms and over all pruned nodes. Empty: everything starts from 0.
struct Prior {
    std::vector<float> arms, nodes;  // means at evenly spaced values of slack(route), linear in between
    std::vector<float> doubt;        // of each arm, in tree order: 1 / (1 + trials)
    std::vector<float> below;        // of each node: what a draw through it brings later, the mean of the arms below
    std::vector<Fallen> fallen;
    std::vector<float> lost;  // of each feature and the bias, one for each fallen arm: what drawing its heir promises
    std::vector<char> open;   // of each node: on the way to the hall, the leaf that every search ends with
    static constexpr std::size_t most_fallen = 64;
    static constexpr double widest = 4;
    static constexpr float least = 1e-4f, lasting = 0.1f, mostly = 0.999f;

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
    Missed missed(const Row& x) const {
        Missed found;
        if (fallen.empty()) return found;
        std::array<float, most_fallen> sums{};
        for (std::size_t j = 0; j < x.size(); ++j) {
            const float* weights = lost.data() + static_cast<std::size_t>(x.index[j]) * fallen.size();
            for (std::size_t i = 0; i < fallen.size(); ++i) sums[i] += weights[i] * x.value[j];
        }
        for (std::size_t i = 0; i < fallen.size(); ++i) {
            const float promise = std::min(sums[i], fallen[i].most);
            if (promise > found.promise) found = {promise, &fallen[i]};
        }
        return found;
    }

    // What a draw through a node brings later if each of so many suspects among the `count` eligible arms below it
    // promises so much; its weight: arms apart are tried node by node, as they were put together, but suspects are
    // everywhere, and each counts; and the part of the draws that is of suspects, where these may be told from the
    // others.
    Promise promise_below(std::int32_t node, float missed, std::int32_t suspects, std::int32_t count, bool told) const {
        if (empty()) return {};
        const float hope = std::max(below[node], lasting * least), heirs = missed * static_cast<float>(suspects);
        if (heirs == 0) return {hope, hope, 0};
        const float weight = hope + heirs;
        if (!told) return {hope + heirs / static_cast<float>(count), weight, 0};
        return {(hope * hope + heirs * missed) / weight, weight, std::min(heirs / weight, mostly)};
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

// `lost`: of each fallen arm as many weights as there are columns, and the most that they promise; `ruled`: the arms
// that are not its heir, and -1.
inline void add_fallen(Prior& prior, const Layout& tree, std::int64_t columns, std::span<const float> lost,
                       std::span<const std::int32_t> ruled) {
    const auto each = static_cast<std::size_t>(columns) + 1, many = lost.size() / each;
    const auto lists = static_cast<std::size_t>(std::count(ruled.begin(), ruled.end(), -1));
    if (lost.size() != many * each || lists != many || many > Prior::most_fallen || (many > 0 && ruled.back() != -1))
        throw std::invalid_argument(std::to_string(lost.size()) + " weights of what was lost and " +
                                    std::to_string(lists) + " lists of arms do not fit " + std::to_string(columns) +
                                    " columns");
    prior.fallen.resize(many);
    prior.lost.resize(many * (each - 1));
    auto next = ruled.begin();
    for (std::size_t i = 0; i < many; ++i) {
        for (std::size_t j = 0; j + 1 < each; ++j) prior.lost[j * many + i] = lost[i * each + j];
        prior.fallen[i].most = lost[i * each + each - 1];
        for (; *next != -1; ++next) {
            if (*next < 0 || *next >= static_cast<std::int32_t>(tree.arms()))
                throw std::invalid_argument("arm " + std::to_string(*next) + " is not an heir; there are arms 0 to " +
                                            std::to_string(tree.arms() - 1));
            prior.fallen[i].ruled.push_back(tree.position_of[*next]);
        }
        ++next;
        std::ranges::sort(prior.fallen[i].ruled);
        prior.fallen[i].out.assign(tree.arms(), false);
        for (const std::int32_t position : prior.fallen[i].ruled) prior.fallen[i].out[position] = true;
        if (std::ranges::adjacent_find(prior.fallen[i].ruled) != prior.fallen[i].ruled.end())
            throw std::invalid_argument("an arm is twice not the heir of a fallen one");
    }
}

// `tables`: as many means for arms, then for nodes; `trials` and `hope`, which is what a draw through a node brings
// later if it is this arm: of each arm by id. All empty: no prior.
inline Prior make_prior(const Layout& tree, std::span<const float> tables, std::span<const std::int32_t> trials,
                        std::span<const float> hope, std::span<const std::int32_t> hall,
                        std::span<const std::int32_t> beside) {
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
    if (!hall.empty()) prior.open.assign(tree.nodes(), 0);
    for (const std::int32_t node : hall) prior.open.at(node) = 1;
    for (const std::int32_t node : beside) prior.open.at(node) = 2;
    return prior;
}

}  // namespace treetop

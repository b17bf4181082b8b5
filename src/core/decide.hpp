// A decision from end to end (Algorithm 3, lines 6 to 20): search, score, explore, and an arm for every chosen node.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "explore.hpp"
#include "parallel.hpp"
#include "rng.hpp"
#include "search.hpp"

namespace treetop {

struct Ask {
    std::int64_t k = 5, explore = 3;
    Width width;
    Strategy strategy;
    double diversity = 0;  // what covering one more group is worth
};

// One row of each array per decision, k slots wide; unused slots hold -1 (arms, nodes), 0 or false.
struct Slots {
    std::vector<std::int32_t> arms, nodes;
    std::vector<double> propensities;
    std::vector<float> scores;
    std::vector<std::uint8_t> explored;
    std::size_t C;                  // components of a score
    std::vector<float> components;  // C a slot

    Slots(std::size_t rows, std::size_t k, std::size_t C_ = 0)
        : arms(rows * k, -1),
          nodes(rows * k, -1),
          propensities(rows * k, 0),
          scores(rows * k, 0),
          explored(rows * k, 0),
          C(C_),
          components(rows * k * C_, 0) {}
};

class Decider {
public:
    explicit Decider(const Model& model) : model_(model), search_(model) {}

    // [x; 1]: the context with the constant feature behind it.
    Row with_bias(const Row& x) {
        index_.assign(x.index.begin(), x.index.end());
        value_.assign(x.value.begin(), x.value.end());
        index_.push_back(static_cast<std::int32_t>(model_.columns - 1));
        value_.push_back(1.0f);
        return {index_, value_};
    }

    const std::vector<Candidate>& search(const Row& x, const Width& width, std::size_t wanted, const Eligible& eligible,
                                         Reuse reuse = Reuse::none) {
        return search_(with_bias(x), width, wanted, eligible, reuse);
    }

    std::int32_t neighbourhood(const Row& x) { return search_.neighbourhood(with_bias(x)); }

    // The cache lines of the layout that a search reads, in the order in which it reads them.
    std::vector<const std::byte*> trace(const Row& x, const Width& width, std::size_t wanted,
                                        const Eligible& eligible) {
        std::vector<const std::byte*> lines;
        search_.trace(&lines);
        search(x, width, wanted, eligible);
        search_.trace(nullptr);
        return lines;
    }

    void routes(const Row& x, std::span<const std::int32_t> arms, double* out) {
        search_.routes(with_bias(x), arms, out);
    }

    // When the search comes to the leaves and when the choice begins, for a decision that is timed.
    using Reached = std::array<std::chrono::steady_clock::time_point, 2>;

    void decide(const Row& x, const Ask& ask, const Eligible& eligible, std::uint64_t key, std::size_t row, Slots& out,
                Reached* reached = nullptr) {
        search_.time(reached ? reached->data() : nullptr);
        const auto& candidates = search(x, ask.width, static_cast<std::size_t>(ask.k), eligible);
        search_.time(nullptr);
        if (reached) (*reached)[1] = std::chrono::steady_clock::now();
        const auto& chosen = explore(candidates, ask, key);
        for (std::size_t s = 0; s < chosen.size(); ++s) {
            const Candidate& candidate = candidates[chosen[s].candidate];
            const std::size_t at = row * static_cast<std::size_t>(ask.k) + s;
            out.arms[at] = candidate.id;
            out.scores[at] = candidate.score;
            out.explored[at] = chosen[s].explored;
            out.propensities[at] = chosen[s].probability;
            put_components(model_, candidate, out.components.data() + at * out.C);
            if (!candidate.node) continue;
            const std::uint64_t own = derive(key, ~static_cast<std::uint64_t>(s));
            out.nodes[at] = candidate.id;
            out.arms[at] = arm_below(candidate.id, eligible, own);
            out.propensities[at] /= arms_below(candidate.id, eligible);
        }
    }

    // Which part of its trials each candidate misses: of an arm that was added and shown n times 1 - n / trials, of any
    // other arm and of nodes 0, as the context does not lead to their arms. With it, scores without the arms' own
    // regressors. Empty if none misses any. `since` has counts that are newer than the model's.
    Newness newness(std::span<const Candidate> candidates, double trials, const TrialCounts* since = nullptr) {
        const auto& shown = model_.pooled.new_trials;
        if (shown.empty() || trials <= 0) return {};
        new_share_.assign(candidates.size(), 0.0f);
        bool any = false;
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            const std::int32_t p = candidates[i].position;
            if (p < 0 || shown[p] < 0) continue;
            const std::int32_t n = since ? since->of(candidates[i].id, shown[p]) : shown[p];
            if (n >= trials) continue;
            new_share_[i] = static_cast<float>(1 - n / trials);
            any = true;
        }
        if (!any) return {};
        prior_.clear();
        for (const Candidate& candidate : candidates) prior_.push_back(prior_score(model_, candidate));
        return {new_share_, prior_};
    }

    const NewDraws& new_draws() const { return explore_.new_draws(); }

    // How many eligible arms are below a node.
    std::int32_t arms_below(std::int32_t node, const Eligible& eligible) const {
        return eligible.below(node, model_.tree.begin[node], model_.tree.end[node]);
    }

    // One of them, uniformly (Algorithm 3, line 19).
    std::int32_t arm_below(std::int32_t node, const Eligible& eligible, std::uint64_t key) const {
        const std::int32_t begin = model_.tree.begin[node], end = model_.tree.end[node];
        const auto j = Stream(key).below(static_cast<std::uint64_t>(arms_below(node, eligible)));
        return model_.tree.arm_at[eligible.pick(begin, end, static_cast<std::int32_t>(j))];
    }

private:
    const std::vector<Choice>& explore(std::span<const Candidate> candidates, const Ask& ask, std::uint64_t key) {
        const Coverage* coverage = &model_.coverage;
        if (ask.strategy.kind != Kind::budgeted)
            return explore_(candidates, ask.k, ask.explore, ask.strategy, key, {}, coverage, ask.diversity);
        Strategy strategy = ask.strategy;
        const Budget& budget = strategy.budget = ask.strategy.budget.after(model_.pooled.exploration_net);
        const Newness fresh = newness(candidates, budget.new_arms > 0 ? budget.new_arm_trials : 0, budget.shown);
        return explore_(candidates, ask.k, ask.explore, strategy, key, fresh, coverage, ask.diversity);
    }

    const Model& model_;
    Searcher search_;
    Explorer explore_;
    std::vector<float> new_share_, prior_;
    std::vector<std::int32_t> index_;
    std::vector<float> value_;
};

// In which order to decide for many contexts: as they come, or, where a model does not fit the caches, those with
// neighbouring arms one after the other. Decisions do not depend on it.
inline std::vector<std::uint32_t> reading_order(const Model& model, const Rows& contexts,
                                                std::span<const std::unique_ptr<Decider>> deciders, int threads) {
    constexpr std::size_t many = 2048, large = std::size_t{32} << 20;
    std::vector<std::uint32_t> order(contexts.size());
    std::iota(order.begin(), order.end(), 0u);
    if (contexts.size() < many || model.index.arena.bytes().size() < large) return order;
    std::vector<std::int32_t> first(contexts.size());
    parallel_for(contexts.size(), threads, 16,
                 [&](int worker, std::size_t i) { first[i] = deciders[worker]->neighbourhood(contexts[i]); });
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return first[a] < first[b]; });
    return order;
}

}  // namespace treetop

// The chance of given slots: what decide.hpp records for a decision that shows these arms, slot by slot. Draws nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decide.hpp"
#include "explore.hpp"
#include "search.hpp"

namespace treetop {

// One row of each array per context, k slots wide; slots without an arm hold 0 (-2 for nodes).
struct Chances {
    std::vector<double> probability;  // of the arm, given the slots before it
    std::vector<std::int32_t> nodes;  // -1: an arm by itself; the node that it would come through; -2: not to be shown
    std::vector<double> score;        // of the effective arm that stands for it
    std::vector<double> expected;     // the mean score of what the slot may show
    std::size_t D;                    // groupings of the arms
    std::vector<double> grouped;      // D a slot: the chance that the slot shows an arm of the same group

    Chances(std::size_t rows, std::size_t k, std::size_t D_)
        : probability(rows * k, 0),
          nodes(rows * k, -2),
          score(rows * k, 0),
          expected(rows * k, 0),
          D(D_),
          grouped(rows * k * D_, 0) {}
};

// The distributions that Explorer draws from, with given choices instead of draws. Every effective arm that was taken
// leaves the play as it does there, so that sums are made in the same order and give the same bytes.
class Assessor : Explorer {
public:
    explicit Assessor(const Model& model) : model_(model) {}

    // `groups` are D nodes for each arm, one of a cut through the tree each.
    void operator()(Decider& decider, const Row& x, const Ask& ask, const Eligible& eligible,
                    std::span<const std::int32_t> arms, std::span<const std::int32_t> groups, std::size_t row,
                    Chances& out) {
        const auto& all = decider.search(x, ask.width, static_cast<std::size_t>(ask.k), eligible);
        begin(decider, all, ask, eligible);
        const std::size_t slots = std::min(arms.size(), static_cast<std::size_t>(slots_));
        for (std::size_t s = 0; s < slots && arms[s] >= 0; ++s) {
            const std::size_t at = row * arms.size() + s;
            distribute(static_cast<std::int64_t>(s));
            for (std::size_t i = 0; i < p_.size(); ++i)
                out.expected[at] += p_[i] * static_cast<double>(all[in_play_[i]].score);
            for (std::size_t d = 0; d < out.D; ++d) {
                const std::int32_t group = groups[d * model_.tree.arms() + static_cast<std::size_t>(arms[s])];
                for (std::size_t i = 0; i < p_.size(); ++i)
                    if (p_[i] > 0) out.grouped[at * out.D + d] += p_[i] * share(all[in_play_[i]], group, eligible);
            }
            const std::int32_t candidate = standing_for(all, arms[s], eligible);
            if (candidate < 0) continue;  // nothing leaves the play
            const Candidate& shown = all[candidate];
            out.nodes[at] = shown.node ? shown.id : -1;
            out.score[at] = shown.score;
            if (taken(candidate)) continue;
            out.probability[at] = p_[place_[candidate]];
            if (shown.node) out.probability[at] /= decider.arms_below(shown.id, eligible);
            step(candidate);
        }
    }

private:
    void begin(Decider& decider, std::span<const Candidate> all, const Ask& ask, const Eligible& eligible) {
        strategy_ = ask.strategy;
        Budget& budget = strategy_.budget;
        slots_ = std::min(ask.k, static_cast<std::int64_t>(all.size()));
        greedy_ = strategy_.kind == Kind::greedy ? slots_ : std::min(ask.k - ask.explore, slots_);
        rank(all, slots_);
        chosen_.clear();
        next_best_ = 0;
        if (strategy_.kind != Kind::budgeted) return;
        if (budget.share + model_.pooled.exploration_net < 0) budget.paying = 0;
        weigh(all, decider.new_share(all, budget.new_arms > 0 ? budget.new_arm_trials : 0, eligible));
        spending_ = per_slot(slots_, slots_ - greedy_, budget);
        evaluation_ = budget.evaluation_share;
        ordinary_ = 1 - evaluation_;
        best_.assign(top_.begin(), top_.begin() + slots_);
    }

    // The chances of all in play to fill slot s, in their order, into p_.
    void distribute(std::int64_t s) {
        p_.assign(in_play_.size(), 0.0);
        if (p_.empty()) return;
        if (strategy_.kind == Kind::budgeted) return distribute_budget(s);
        while (taken(top_[next_best_])) ++next_best_;
        const std::size_t best = place_[top_[next_best_]];
        if (s < greedy_) {
            p_[best] = 1;
            return;
        }
        const auto left = static_cast<double>(in_play_.size());
        if (strategy_.kind == Kind::igw) {
            const double gamma = std::sqrt(strategy_.rate * left), top = score_[best];
            for (std::size_t i = 0; i < p_.size(); ++i) p_[i] = 1.0 / (left + gamma * (top - score_[i]));
            double others = 0;
            for (std::size_t i = 0; i < best; ++i) others += p_[i];
            for (std::size_t i = best + 1; i < p_.size(); ++i) others += p_[i];
            p_[best] = 1.0 - others;
        } else if (strategy_.kind == Kind::boltzmann) {
            double total = 0;
            for (std::size_t i = 0; i < p_.size(); ++i) {
                p_[i] = std::exp(strategy_.rate * (score_[i] - score_[best]));
                total += p_[i];
            }
            for (double& p : p_) p /= total;
        } else {
            const double each = strategy_.rate / left;
            std::fill(p_.begin(), p_.end(), each);
            p_[best] = 1.0 - strategy_.rate + each;
        }
    }

    // Of either kind of event, by how likely the slots so far are in each. Slots that neither kind can show say nothing
    // about the kind.
    void distribute_budget(std::int64_t s) {
        const Budget& budget = strategy_.budget;
        std::erase_if(best_, [&](std::int32_t i) { return taken(i); });
        best_.resize(std::min(best_.size(), static_cast<std::size_t>(slots_ - s)));
        best_place_ = place_[best_.front()];
        if (evaluation_ + ordinary_ <= 0) {
            evaluation_ = budget.evaluation_share;
            ordinary_ = 1 - evaluation_;
        }
        mixture_ = {};
        if (s >= greedy_ && ordinary_ > 0) mixture_ = mix_within(spending_, score_[place_[best_.back()]], budget.most);
        for (std::size_t i = 0; i < p_.size(); ++i)
            p_[i] = (evaluation_ * even(i) + ordinary_ * chance(i, best_place_, mixture_)) / (evaluation_ + ordinary_);
    }

    double even(std::size_t place) const {
        const double floor = strategy_.budget.evaluation_floor;
        return (place == best_place_ ? 1 - floor : 0) + floor / static_cast<double>(in_play_.size());
    }

    void step(std::int32_t candidate) {
        const std::size_t place = place_[candidate];
        if (strategy_.kind == Kind::budgeted) {
            evaluation_ *= even(place);
            ordinary_ *= chance(place, best_place_, mixture_);
        }
        take(candidate, 0, false);
    }

    // The effective arm that is an arm or has it below: there is one if the arm is eligible, since they part the arms.
    std::int32_t standing_for(std::span<const Candidate> all, std::int32_t arm, const Eligible& eligible) const {
        const std::int32_t position = model_.tree.position_of[arm];
        if (eligible.count(position, position + 1) == 0) return -1;
        for (std::size_t i = 0; i < all.size(); ++i)
            if (all[i].node ? below(all[i].id, position) : all[i].id == arm) return static_cast<std::int32_t>(i);
        return -1;
    }

    bool below(std::int32_t node, std::int32_t position) const {
        return model_.tree.begin[node] <= position && position < model_.tree.end[node];
    }

    // Which part of what a candidate may show lies below a node.
    double share(const Candidate& candidate, std::int32_t group, const Eligible& eligible) const {
        const auto& tree = model_.tree;
        const std::int32_t begin = tree.begin[group], end = tree.end[group];
        if (!candidate.node) return below(group, tree.position_of[candidate.id]) ? 1.0 : 0.0;
        const std::int32_t first = std::max(begin, tree.begin[candidate.id]);
        const std::int32_t last = std::min(end, tree.end[candidate.id]);
        if (first >= last) return 0;
        if (begin <= tree.begin[candidate.id] && tree.end[candidate.id] <= end) return 1;
        return static_cast<double>(eligible.count(first, last)) /
               eligible.below(candidate.id, tree.begin[candidate.id], tree.end[candidate.id]);
    }

    const Model& model_;
    Strategy strategy_;
    std::int64_t slots_ = 0, greedy_ = 0, next_best_ = 0;
    Spending spending_;
    Mixture mixture_;
    double evaluation_ = 0, ordinary_ = 1;
    std::size_t best_place_ = 0;
    std::vector<double> p_;
};

}  // namespace treetop

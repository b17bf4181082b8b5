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

    // For several ways to explore what one search found: they differ in `explore` and `strategy` alone. `groups` are D
    // nodes for each arm, one of a cut through the tree each.
    void operator()(Decider& decider, const Row& x, std::span<const Ask> asks, const Eligible& eligible,
                    std::span<const std::int32_t> arms, std::span<const std::int32_t> groups, std::size_t row,
                    std::span<Chances> out) {
        const auto& all = decider.search(x, asks[0].width, static_cast<std::size_t>(asks[0].k), eligible);
        locate(decider, all, eligible, arms);
        share_out(all, eligible, arms, groups);
        for (std::size_t j = 0; j < asks.size(); ++j) {
            begin(decider, all, asks[j], eligible);
            assess(all, arms, row, out[j]);
        }
    }

private:
    // Which effective arm stands for each given arm, and how many arms that may show; -1 for one that cannot be shown.
    void locate(const Decider& decider, std::span<const Candidate> all, const Eligible& eligible,
                std::span<const std::int32_t> arms) {
        const auto& tree = model_.tree;
        first_.resize(all.size());
        last_.resize(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            first_[i] = all[i].node ? tree.begin[all[i].id] : tree.position_of[all[i].id];
            last_[i] = all[i].node ? tree.end[all[i].id] : first_[i] + 1;
        }
        standing_.clear();
        below_.clear();
        for (const std::int32_t arm : arms) {
            if (arm < 0) break;
            const std::int32_t position = tree.position_of[arm];
            std::int32_t found = -1, below = 1;
            if (eligible.count(position, position + 1) > 0)
                for (std::size_t i = 0; i < all.size(); ++i)
                    if (first_[i] <= position && position < last_[i]) found = static_cast<std::int32_t>(i);
            if (found >= 0 && all[found].node) below = decider.arms_below(all[found].id, eligible);
            standing_.push_back(found);
            below_.push_back(below);
        }
    }

    // Which part of what each effective arm may show is in the group of each given arm: for slot, grouping, candidate.
    void share_out(std::span<const Candidate> all, const Eligible& eligible, std::span<const std::int32_t> arms,
                   std::span<const std::int32_t> groups) {
        const auto& tree = model_.tree;
        D_ = groups.size() / tree.arms();
        shares_.assign(standing_.size() * D_ * all.size(), 0.0);
        double* share = shares_.data();
        for (std::size_t s = 0; s < standing_.size(); ++s)
            for (std::size_t d = 0; d < D_; ++d, share += all.size()) {
                const std::int32_t group = groups[d * tree.arms() + static_cast<std::size_t>(arms[s])];
                const std::int32_t begin = tree.begin[group], end = tree.end[group];
                for (std::size_t i = 0; i < all.size(); ++i)
                    if (begin < last_[i] && first_[i] < end)
                        share[i] = begin <= first_[i] && last_[i] <= end ? 1.0 : part(all[i], begin, end, eligible);
            }
    }

    // Of a node's eligible arms, those at some of its positions.
    double part(const Candidate& node, std::int32_t begin, std::int32_t end, const Eligible& eligible) const {
        const std::int32_t first = model_.tree.begin[node.id], last = model_.tree.end[node.id];
        return static_cast<double>(eligible.count(begin, end)) / eligible.below(node.id, first, last);
    }

    // The slots of one row, after begin().
    void assess(std::span<const Candidate> all, std::span<const std::int32_t> arms, std::size_t row, Chances& out) {
        const std::size_t slots = std::min(standing_.size(), static_cast<std::size_t>(slots_));
        for (std::size_t s = 0; s < slots; ++s) {
            const std::size_t at = row * arms.size() + s;
            distribute(static_cast<std::int64_t>(s));
            for (std::size_t i = 0; i < p_.size(); ++i)
                out.expected[at] += p_[i] * static_cast<double>(all[in_play_[i]].score);
            for (std::size_t d = 0; d < D_; ++d) {
                const double* share = shares_.data() + (s * D_ + d) * all.size();
                for (std::size_t i = 0; i < p_.size(); ++i) out.grouped[at * D_ + d] += p_[i] * share[in_play_[i]];
            }
            const std::int32_t candidate = standing_[s];
            if (candidate < 0) continue;  // nothing leaves the play
            const Candidate& shown = all[candidate];
            out.nodes[at] = shown.node ? shown.id : -1;
            out.score[at] = shown.score;
            if (taken(candidate)) continue;
            out.probability[at] = p_[place_[candidate]];
            if (shown.node) out.probability[at] /= below_[s];
            step(candidate);
        }
    }

    void begin(Decider& decider, std::span<const Candidate> all, const Ask& ask, const Eligible& eligible) {
        strategy_ = ask.strategy;
        slots_ = std::min(ask.k, static_cast<std::int64_t>(all.size()));
        greedy_ = strategy_.kind == Kind::greedy ? slots_ : std::min(ask.k - ask.explore, slots_);
        rank(all, slots_);
        chosen_.clear();
        next_best_ = 0;
        if (strategy_.kind != Kind::budgeted) return;
        const Budget& budget = strategy_.budget = ask.strategy.budget.after(model_.pooled.exploration_net);
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

    const Model& model_;
    Strategy strategy_;
    std::int64_t slots_ = 0, greedy_ = 0, next_best_ = 0;
    Spending spending_;
    Mixture mixture_;
    double evaluation_ = 0, ordinary_ = 1;
    std::size_t best_place_ = 0;
    std::vector<double> p_;
    std::vector<std::int32_t> first_, last_;      // of each candidate: the positions of its arms
    std::vector<std::int32_t> standing_, below_;  // of each given arm
    std::size_t D_ = 0;
    std::vector<double> shares_;
};

}  // namespace treetop

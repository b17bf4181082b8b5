// The chance of given slots: what decide.hpp records for a decision that shows these arms, slot by slot. Draws nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "chances.hpp"
#include "decide.hpp"
#include "explore.hpp"
#include "located.hpp"
#include "search.hpp"

namespace treetop {

// The distributions that Explorer draws from, with given choices instead of draws. Every effective arm that was taken
// leaves the play as it does there, so that sums are made in the same order and give the same bytes.
class Assessor : Explorer, Located {
public:
    explicit Assessor(const Model& model) : Located(model.tree), model_(model) {}

    // For several policies; those that search alike stand together. `groups` are D nodes for each arm, one of a cut
    // through the tree each. `beside` is what `note` found of the policy that served, of a model with the same tree;
    // `noted` if this assessor noted it just now, with a search like that of the first. `first`: those before it have
    // been assessed by `note`.
    void operator()(Decider& decider, const Row& x, std::span<const Ask> asks, const Eligible& eligible,
                    std::span<const std::int32_t> arms, std::span<const std::int32_t> groups, std::size_t row,
                    const Shown* beside, bool noted, std::size_t first, std::span<Chances> out) {
        const std::vector<Candidate>* all = noted ? found_ : nullptr;
        for (std::size_t j = first; j < asks.size(); ++j) {
            if (j == 0 || !alike(asks[j - 1], asks[j])) {
                if (j > 0 || !noted) {
                    const Reuse reuse = j > 0 || noted ? Reuse::last : Reuse::later;
                    all = &decider.search(x, asks[j].width, static_cast<std::size_t>(asks[j].k), eligible, reuse);
                    locate(decider, *all, eligible, arms);
                    ranked_ = false;
                }
                share_out(*all, eligible, arms, groups);
                same_ = j == 0 && noted;
                if (beside && !same_) match(*beside);
            }
            begin(decider, *all, asks[j]);
            assess(*all, arms, row, beside, out[j]);
        }
    }

    // What one policy may show in each of the given slots; and its own chances, if they are asked for.
    void note(Decider& decider, const Row& x, const Ask& ask, const Eligible& eligible,
              std::span<const std::int32_t> arms, std::span<const std::int32_t> groups, std::size_t row, Shown& out,
              Chances* own) {
        const auto& all = decider.search(x, ask.width, static_cast<std::size_t>(ask.k), eligible, Reuse::later);
        found_ = &all;
        locate(decider, all, eligible, arms);
        ranked_ = false;
        if (own) share_out(all, eligible, arms, groups);
        same_ = true;
        out.pieces.clear();
        for (std::size_t o = 0; o < all.size(); ++o) out.pieces.push_back({first_[o], last_[o], count_[o]});
        begin(decider, all, ask);
        const std::size_t slots = std::min(standing_.size(), static_cast<std::size_t>(slots_));
        out.chance.assign(standing_.size() * (all.size() + 1), 0.0);
        for (std::size_t s = 0; s < slots; ++s) {
            distribute(static_cast<std::int64_t>(s));
            double* chance = out.chance.data() + s * (all.size() + 1);
            for (std::size_t o = 0; o < all.size(); ++o) chance[o] = full_[o] / count_[o];
            if (own) describe(s, row * arms.size() + s, &out, *own);
            leave(all, s, row * arms.size() + s, own);
        }
    }

    static bool alike(const Ask& a, const Ask& b) {
        return a.k == b.k && a.width.beam == b.width.beam && a.width.beta == b.width.beta;
    }

private:
    // What a slot of the candidate may show that the served policy may show too.
    void compare(std::size_t s, std::size_t at, const Shown& beside, Chances& out) const {
        const double* chance = beside.slot(s);
        Meeting met;
        const auto meet = [&](std::size_t o, double served, double part) {
            met.add(0, full_[o] * each_[o], full_[o] * part, mean_[o], served);
        };
        if (certain_ >= 0) {
            same_ ? meet(sure_, chance[sure_], 1) : meet(sure_, chance[piece_[sure_]], part_[sure_]);
        } else if (same_) {
            const double *p = full_.data(), *each = each_.data(), *mean = mean_.data();
            const std::size_t n = full_.size(), whole = n / 4 * 4;
            for (std::size_t o = 0; o < whole; o += 4)  // four sums at a time, as the machine adds
                for (std::size_t j = 0; j < 4; ++j)
                    met.add(j, p[o + j] * each[o + j], p[o + j], mean[o + j], chance[o + j]);
            for (std::size_t o = whole; o < n; ++o) meet(o, chance[o], 1);
        } else {
            for (std::size_t o = 0; o < full_.size(); ++o) meet(o, chance[piece_[o]], part_[o]);
        }
        for (const auto& [o, first, last] : same_ ? std::span<const Several>() : std::span<const Several>(several_)) {
            const double one = full_[o] * each_[o];
            if (one <= 0) continue;
            for (std::int32_t j = first; j < last; ++j)
                met.add(0, one, one * beside.pieces[j].count, mean_[o], chance[j]);
        }
        out.covered[at] = met.covered[0] + met.covered[1] + met.covered[2] + met.covered[3];
        out.expected[at] = met.expected[0] + met.expected[1] + met.expected[2] + met.expected[3];
        out.largest[at] = *std::max_element(met.largest.begin(), met.largest.end());
    }

    // The slots of one row, after begin().
    void assess(std::span<const Candidate> all, std::span<const std::int32_t> arms, std::size_t row,
                const Shown* beside, Chances& out) {
        const std::size_t slots = std::min(standing_.size(), static_cast<std::size_t>(slots_));
        for (std::size_t s = 0; s < slots; ++s) {
            distribute(static_cast<std::int64_t>(s));
            describe(s, row * arms.size() + s, beside, out);
            leave(all, s, row * arms.size() + s, &out);
        }
    }

    // What slot s may show, after distribute().
    void describe(std::size_t s, std::size_t at, const Shown* beside, Chances& out) const {
        if (beside)
            compare(s, at, *beside, out);
        else if (certain_ >= 0)
            out.expected[at] = mean_[sure_];
        else
            for (std::size_t o = 0; o < full_.size(); ++o) out.expected[at] += full_[o] * mean_[o];
        for (std::size_t d = 0; d < D_; ++d) {
            const Share& share = shares_[s * D_ + d];
            double grouped = 0;
            if (certain_ >= 0)
                grouped = share.first <= sure_ && sure_ < share.last ? 1 : 0;
            else
                for (std::size_t o = share.first; o < share.last; ++o) grouped += full_[o];
            out.grouped[at * D_ + d] = grouped * share.part;
        }
    }

    // What stands for the arm of slot s leaves the play; its chance is written down, if there is somewhere to.
    void leave(std::span<const Candidate> all, std::size_t s, std::size_t at, Chances* out) {
        const std::int32_t candidate = standing_[s];
        if (candidate < 0) return;  // nothing leaves the play
        const Candidate& shown = all[candidate];
        if (out) {
            out->nodes[at] = shown.node ? shown.id : -1;
            out->score[at] = mean_[spot_[candidate]];
        }
        if (taken(candidate)) return;
        if (out) {
            out->probability[at] = recorded(place_[candidate]);
            if (shown.node) out->probability[at] /= count_[spot_[candidate]];
        }
        step(candidate);
    }

    void begin(Decider& decider, std::span<const Candidate> all, const Ask& ask) {
        strategy_ = ask.strategy;
        slots_ = std::min(ask.k, static_cast<std::int64_t>(all.size()));
        greedy_ = strategy_.kind == Kind::greedy ? slots_ : std::min(ask.k - ask.explore, slots_);
        rank_again(all);
        chosen_.clear();
        moved_.clear();
        if (strategy_.kind != Kind::budgeted) return diversify(all, &model_.coverage, ask.diversity);
        const Budget& budget = strategy_.budget = ask.strategy.budget.after(model_.pooled.exploration_net);
        const double trials = budget.new_arms > 0 ? budget.new_arm_trials : 0;
        weigh(all, decider.newness(all, trials, budget.shown), slots_);
        diversify(all, &model_.coverage, ask.diversity);
        spending_ = per_slot(slots_, slots_ - greedy_, budget);
        evaluation_ = budget.evaluation_share;
        ordinary_ = 1 - evaluation_;
    }

    // As rank(), which is asked once for candidates of one search: they are the same for all policies.
    void rank_again(std::span<const Candidate> all) {
        rank(all.first(ranked_ ? 0 : all.size()), ranked_ ? 0 : slots_);
        if (!ranked_) {
            ranked_top_ = top_;
            ranked_score_ = score_;
            ranked_ = true;
            return;
        }
        top_ = ranked_top_;
        score_ = ranked_score_;
        in_play_.resize(all.size());
        std::iota(in_play_.begin(), in_play_.end(), 0);
        place_ = in_play_;
    }

    // The chances of all in play to fill slot s, in their order, into p_, and of all in the order of the tree, into
    // full_. Those of a budget are right up to rounding; `recorded` has what a decision would record.
    void distribute(std::int64_t s) {
        p_.resize(in_play_.size());
        certain_ = -1;
        if (strategy_.kind == Kind::budgeted && !p_.empty())
            distribute_budget(s);
        else if (!p_.empty())
            distribute_drawn(s);
        if (certain_ >= 0) {
            sure_ = static_cast<std::size_t>(spot_[in_play_[certain_]]);
            full_.assign(order_.size(), 0.0);
            full_[sure_] = 1;
            return;
        }
        full_.resize(order_.size());  // nearly all in play stand where they began
        for (std::size_t i = 0; i < p_.size(); ++i) full_[spot_[i]] = p_[i];
        for (const Choice& choice : chosen_) full_[spot_[choice.candidate]] = 0;
        for (const std::size_t i : moved_)
            if (i < p_.size()) full_[spot_[in_play_[i]]] = p_[i];
    }

    void distribute_drawn(std::int64_t s) {
        const std::size_t best = place_[leading()];
        if (s < greedy_) {
            certain_ = static_cast<std::int32_t>(best);
            std::fill(p_.begin(), p_.end(), 0.0);
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
        fit(static_cast<std::size_t>(slots_ - s));
        best_place_ = place_[best_.front()];
        if (evaluation_ + ordinary_ <= 0) {
            evaluation_ = budget.evaluation_share;
            ordinary_ = 1 - evaluation_;
        }
        mixture_ = {};
        if (s >= greedy_ && ordinary_ > 0) mixture_ = mix_within(spending_, budget.most);
        const double both = evaluation_ + ordinary_;
        const double each = evaluation_ * budget.evaluation_floor / static_cast<double>(p_.size()) / both;
        if (mixture_.explore > 0) {
            const double rate = ordinary_ * mixture_.explore / mixture_.weights / both;
            for (std::size_t i = 0; i < p_.size(); ++i) p_[i] = each + rate * drawable_[i];
        } else {
            std::fill(p_.begin(), p_.end(), each);
        }
        if (mixture_.fresh > 0)
            new_.each([&](std::int32_t candidate, double chance) {
                p_[place_[candidate]] += ordinary_ * mixture_.fresh * chance / both;
            });
        p_[best_place_] = recorded(best_place_);
    }

    // The chance of a place as a decision records it, to the last bit.
    double recorded(std::size_t place) const {
        if (strategy_.kind != Kind::budgeted) return p_[place];
        return (evaluation_ * even(place) + ordinary_ * chance(place, best_place_, mixture_)) /
               (evaluation_ + ordinary_);
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
        moved_.push_back(place);
        take(candidate, 0, false);
    }

    const Model& model_;
    Strategy strategy_;
    std::int64_t slots_ = 0, greedy_ = 0;
    Spending spending_;
    Mixture mixture_;
    double evaluation_ = 0, ordinary_ = 1;
    std::size_t best_place_ = 0;
    bool ranked_ = false;  // whether the candidates of the last search are
    std::vector<std::int32_t> ranked_top_;
    std::vector<double> ranked_score_;
    std::vector<double> p_;
    std::int32_t certain_ = -1;       // the only place in p_ that is not 0; -1 if there are more
    std::size_t sure_ = 0;            // and where it stands in order_
    std::vector<std::size_t> moved_;  // places in play that another candidate was moved to
    std::vector<double> full_;        // in the order of order_: the chances of a slot, 0 of those that are taken
    bool same_ = false;               // whether the served policy has the same effective arms
    const std::vector<Candidate>* found_ = nullptr;  // by the decider of the last note()
};

}  // namespace treetop

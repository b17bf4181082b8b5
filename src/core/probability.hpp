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
#include "search.hpp"

namespace treetop {

// The distributions that Explorer draws from, with given choices instead of draws. Every effective arm that was taken
// leaves the play as it does there, so that sums are made in the same order and give the same bytes.
class Assessor : Explorer {
public:
    explicit Assessor(const Model& model) : model_(model) {}

    // For several policies; those that search alike stand together. `groups` are D nodes for each arm, one of a cut
    // through the tree each. `beside` is what `note` found of the policy that served, of a model with the same tree;
    // `noted` if this assessor noted it just now, with a search like that of the first.
    void operator()(Decider& decider, const Row& x, std::span<const Ask> asks, const Eligible& eligible,
                    std::span<const std::int32_t> arms, std::span<const std::int32_t> groups, std::size_t row,
                    const Shown* beside, bool noted, std::span<Chances> out) {
        const std::vector<Candidate>* all = noted ? found_ : nullptr;
        for (std::size_t j = 0; j < asks.size(); ++j) {
            if (j == 0 || !alike(asks[j - 1], asks[j])) {
                if (j > 0 || !noted) {
                    const Reuse reuse = j > 0 || noted ? Reuse::last : Reuse::later;
                    all = &decider.search(x, asks[j].width, static_cast<std::size_t>(asks[j].k), eligible, reuse);
                    locate(decider, *all, eligible, arms);
                }
                share_out(*all, eligible, arms, groups);
                if (beside) match(*all, *beside, j == 0 && noted);
            }
            begin(decider, *all, asks[j]);
            assess(*all, arms, row, beside, out[j]);
        }
    }

    // What one policy may show in each of the given slots.
    void note(Decider& decider, const Row& x, const Ask& ask, const Eligible& eligible,
              std::span<const std::int32_t> arms, Shown& out) {
        const auto& all = decider.search(x, ask.width, static_cast<std::size_t>(ask.k), eligible, Reuse::later);
        found_ = &all;
        locate(decider, all, eligible, arms);
        out.pieces.clear();
        out.place.resize(all.size());
        for (const std::int32_t i : order_) {
            out.place[i] = static_cast<std::int32_t>(out.pieces.size());
            out.pieces.push_back({first_[i], last_[i], count_[i]});
        }
        begin(decider, all, ask);
        const std::size_t slots = std::min(standing_.size(), static_cast<std::size_t>(slots_));
        out.chance.assign(standing_.size() * (all.size() + 1), 0.0);
        for (std::size_t s = 0; s < slots; ++s) {
            distribute(static_cast<std::int64_t>(s));
            double* chance = out.chance.data() + s * (all.size() + 1);
            for (std::size_t i = 0; i < p_.size(); ++i) {
                const std::int32_t candidate = in_play_[i];
                chance[out.place[candidate]] = all[candidate].node ? p_[i] / count_[candidate] : p_[i];
            }
            if (standing_[s] >= 0 && !taken(standing_[s])) step(standing_[s]);
        }
    }

    static bool alike(const Ask& a, const Ask& b) {
        return a.k == b.k && a.width.beam == b.width.beam && a.width.beta == b.width.beta;
    }

private:
    // Where each effective arm lies, their order, and which of them stands for each given arm; -1 for one that cannot
    // be shown.
    void locate(const Decider& decider, std::span<const Candidate> all, const Eligible& eligible,
                std::span<const std::int32_t> arms) {
        const auto& tree = model_.tree;
        first_.resize(all.size());
        last_.resize(all.size());
        count_.resize(all.size());
        mean_.resize(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            first_[i] = all[i].node ? tree.begin[all[i].id] : tree.position_of[all[i].id];
            last_[i] = all[i].node ? tree.end[all[i].id] : first_[i] + 1;
            count_[i] = all[i].node ? decider.arms_below(all[i].id, eligible) : 1;
            mean_[i] = expectation(all[i]);
        }
        sort_by_position(all);
        ranked_ = false;
        standing_.clear();
        for (const std::int32_t arm : arms) {
            if (arm < 0) break;
            const std::int32_t position = tree.position_of[arm];
            const auto found = from(position);
            const bool there = found != order_.end() && first_[*found] <= position;
            standing_.push_back(there && eligible.count(position, position + 1) > 0 ? *found : -1);
        }
    }

    // Searches find nodes before arms, and arms mostly in their order: merging the two is faster than sorting.
    void sort_by_position(std::span<const Candidate> all) {
        const auto ahead = [&](std::int32_t a, std::int32_t b) { return first_[a] < first_[b]; };
        order_.resize(all.size());
        unmerged_.resize(all.size());
        std::iota(unmerged_.begin(), unmerged_.end(), 0);
        const auto arms = std::find_if(unmerged_.begin(), unmerged_.end(), [&](auto i) { return !all[i].node; });
        std::sort(unmerged_.begin(), arms, ahead);
        if (!std::is_sorted(arms, unmerged_.end(), ahead)) std::sort(arms, unmerged_.end(), ahead);
        std::merge(unmerged_.begin(), arms, arms, unmerged_.end(), order_.begin(), ahead);
    }

    // The first in order that does not end before a position.
    std::vector<std::int32_t>::const_iterator from(std::int32_t position) const {
        return std::partition_point(order_.begin(), order_.end(), [&](auto i) { return last_[i] <= position; });
    }

    // Which effective arms may show any of the group of each given arm, and which part of what they show that is: for
    // slot and grouping.
    void share_out(std::span<const Candidate> all, const Eligible& eligible, std::span<const std::int32_t> arms,
                   std::span<const std::int32_t> groups) {
        const auto& tree = model_.tree;
        D_ = groups.size() / tree.arms();
        shares_.clear();
        share_start_.assign(1, 0);
        for (std::size_t s = 0; s < standing_.size(); ++s)
            for (std::size_t d = 0; d < D_; ++d) {
                const std::int32_t group = groups[d * tree.arms() + static_cast<std::size_t>(arms[s])];
                const std::int32_t begin = tree.begin[group], end = tree.end[group];
                for (auto o = from(begin); o != order_.end() && first_[*o] < end; ++o) {
                    const bool whole = begin <= first_[*o] && last_[*o] <= end;
                    shares_.push_back({*o, whole ? 1.0 : part(all[*o], begin, end, eligible)});
                }
                share_start_.push_back(shares_.size());
            }
    }

    // Of a node's eligible arms, those at some of its positions.
    double part(const Candidate& node, std::int32_t begin, std::int32_t end, const Eligible& eligible) const {
        const std::int32_t first = model_.tree.begin[node.id], last = model_.tree.end[node.id];
        return static_cast<double>(eligible.count(begin, end)) / eligible.below(node.id, first, last);
    }

    // Which piece of the served policy each effective arm meets, and how much of it: it lies in one, or some lie in it.
    void match(std::span<const Candidate> all, const Shown& beside, bool same) {
        const auto& pieces = beside.pieces;
        const auto none = static_cast<std::int32_t>(pieces.size());  // has chance 0
        piece_.resize(all.size());
        part_.resize(all.size());
        each_.resize(all.size());
        several_.clear();
        std::int32_t next = 0;
        for (const std::int32_t i : order_) {
            while (next < none && pieces[next].last <= first_[i]) ++next;
            std::int32_t end = same ? next + 1 : next;
            while (end < none && pieces[end].first < last_[i]) ++end;
            const bool one = end - next == 1;
            piece_[i] = one ? next : none;
            each_[i] = 1.0 / count_[i];
            part_[i] = one ? std::min(count_[i], pieces[next].count) * each_[i] : 0;
            if (end - next > 1) several_.push_back({i, next, end});
        }
    }

    // What a slot of the candidate may show that the served policy may show too.
    void compare(std::size_t s, std::size_t at, const Shown& beside, Chances& out) const {
        const double* chance = beside.slot(s);
        const double *p = p_.data(), *part = part_.data(), *each = each_.data(), *mean = mean_.data();
        const std::int32_t *in_play = in_play_.data(), *piece = piece_.data();
        double covered = 0, expected = 0, largest = 0;
        const auto add = [&](double one, double mass, double score, double served) {
            covered += mass;
            expected += mass * score;
            if (one > largest * served) largest = one / served;
        };
        const bool certain = certain_ >= 0;
        const std::size_t end = certain ? static_cast<std::size_t>(certain_) + 1 : p_.size();
        for (std::size_t i = certain ? end - 1 : 0; i < end; ++i) {
            const std::int32_t candidate = in_play[i];
            const double served = chance[piece[candidate]];
            if (served > 0) add(p[i] * each[candidate], p[i] * part[candidate], mean[candidate], served);
        }
        for (const auto& [candidate, first, last] : several_) {
            if (taken(candidate) || p[place_[candidate]] <= 0) continue;
            const double one = p[place_[candidate]] * each[candidate];
            for (std::int32_t j = first; j < last; ++j)
                if (chance[j] > 0) add(one, one * beside.pieces[j].count, mean[candidate], chance[j]);
        }
        out.covered[at] = covered;
        out.expected[at] = expected;
        out.largest[at] = largest;
    }

    static double expectation(const Candidate& candidate) {
        return std::clamp(static_cast<double>(candidate.score), 0.0, 1.0);
    }

    // The slots of one row, after begin().
    void assess(std::span<const Candidate> all, std::span<const std::int32_t> arms, std::size_t row,
                const Shown* beside, Chances& out) {
        const std::size_t slots = std::min(standing_.size(), static_cast<std::size_t>(slots_));
        for (std::size_t s = 0; s < slots; ++s) {
            const std::size_t at = row * arms.size() + s;
            distribute(static_cast<std::int64_t>(s));
            if (beside)
                compare(s, at, *beside, out);
            else
                for (std::size_t i = 0; i < p_.size(); ++i) out.expected[at] += p_[i] * mean_[in_play_[i]];
            for (std::size_t d = 0; d < D_; ++d) {
                double grouped = 0;
                for (std::size_t j = share_start_[s * D_ + d]; j < share_start_[s * D_ + d + 1]; ++j)
                    if (const std::int32_t place = place_[shares_[j].candidate]; place >= 0)
                        grouped += p_[place] * shares_[j].part;
                out.grouped[at * D_ + d] = grouped;
            }
            const std::int32_t candidate = standing_[s];
            if (candidate < 0) continue;  // nothing leaves the play
            const Candidate& shown = all[candidate];
            out.nodes[at] = shown.node ? shown.id : -1;
            out.score[at] = mean_[candidate];
            if (taken(candidate)) continue;
            out.probability[at] = recorded(place_[candidate]);
            if (shown.node) out.probability[at] /= count_[candidate];
            step(candidate);
        }
    }

    void begin(Decider& decider, std::span<const Candidate> all, const Ask& ask) {
        strategy_ = ask.strategy;
        slots_ = std::min(ask.k, static_cast<std::int64_t>(all.size()));
        greedy_ = strategy_.kind == Kind::greedy ? slots_ : std::min(ask.k - ask.explore, slots_);
        rank_again(all);
        chosen_.clear();
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

    // The chances of all in play to fill slot s, in their order, into p_. Those of a budget are right up to rounding;
    // `recorded` has what a decision would record.
    void distribute(std::int64_t s) {
        p_.assign(in_play_.size(), 0.0);
        certain_ = -1;
        if (p_.empty()) return;
        if (strategy_.kind == Kind::budgeted) return distribute_budget(s);
        const std::size_t best = place_[leading()];
        if (s < greedy_) {
            certain_ = static_cast<std::int32_t>(best);
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
        if (s >= greedy_ && ordinary_ > 0) mixture_ = mix_within(spending_, worth()[place_[best_.back()]], budget.most);
        const double both = evaluation_ + ordinary_;
        const double each = evaluation_ * budget.evaluation_floor / static_cast<double>(p_.size()) / both;
        std::fill(p_.begin(), p_.end(), each);
        if (mixture_.explore > 0) {
            const double rate = ordinary_ * mixture_.explore / mixture_.weights / both;
            for (std::size_t i = 0; i < p_.size(); ++i) p_[i] += rate * drawable_[i];
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
        take(candidate, 0, false);
    }

    struct Share {
        std::int32_t candidate;
        double part;
    };
    struct Several {
        std::int32_t candidate, first, last;  // pieces
    };

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
    std::int32_t certain_ = -1;                      // the only place in p_ that is not 0; -1 if there are more
    std::vector<std::int32_t> first_, last_;         // of each candidate: the positions of its arms
    std::vector<std::int32_t> count_;                // and how many are eligible
    std::vector<double> mean_;                       // and its score in [0, 1]
    std::vector<std::int32_t> order_, unmerged_;     // of candidates by position
    std::vector<std::int32_t> standing_;             // for each given arm
    std::vector<std::int32_t> piece_;                // of each candidate: the one piece of the served policy it meets
    std::vector<double> part_, each_;                // of its arms, how many that has, and one of them
    std::vector<Several> several_;                   // candidates that meet several
    const std::vector<Candidate>* found_ = nullptr;  // by the decider of the last note()
    std::size_t D_ = 0;
    std::vector<Share> shares_;
    std::vector<std::size_t> share_start_;
};

}  // namespace treetop

// Candidates in play, in order, and who fills the slots that are left if nothing is drawn. Draws nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "candidate.hpp"
#include "coverage.hpp"

namespace treetop {

class Slate {
protected:  // for Explorer (explore.hpp)
    // The best `slots` in order: whatever is taken, the best still in play is among them. A score that is not finite
    // (too large weights and contexts overflow) has no place in an order and no probability.
    void rank(std::span<const Candidate> all, std::int64_t slots) {
        in_play_.resize(all.size());
        place_.resize(all.size());
        top_.resize(all.size());
        score_.resize(all.size());
        next_best_ = 0;
        bonus_.begin(nullptr, 0);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!std::isfinite(all[i].score))
                throw std::invalid_argument("the score of " + std::string(all[i].node ? "node " : "arm ") +
                                            std::to_string(all[i].id) + " is " + std::to_string(all[i].score));
            in_play_[i] = place_[i] = top_[i] = static_cast<std::int32_t>(i);
            score_[i] = all[i].score;
        }
        std::partial_sort(top_.begin(), top_.begin() + slots, top_.end(),
                          [&](std::int32_t a, std::int32_t b) { return better(all[a], all[b]); });
    }

    // Scores with what each candidate covers, and what those above leave of it.
    void diversify(std::span<const Candidate> all, const Coverage* coverage, double weight) {
        bonus_.begin(coverage, weight);
        if (!bonus_.on()) return;
        all_ = all;
        base_ = score_;
        add_bonus();
    }

    void add_bonus() {
        for (std::size_t i = 0; i < in_play_.size(); ++i)
            score_[i] = bonus_.worth(row(in_play_[i]), base_[in_play_[i]]);
    }

    // Of some in play, where the best by scores or worths stands.
    std::vector<std::int32_t>::iterator first_of(std::vector<std::int32_t>& some, const std::vector<double>& by) const {
        return std::min_element(some.begin(), some.end(), [&](std::int32_t a, std::int32_t b) {
            const double mine = by[place_[a]], theirs = by[place_[b]];
            return mine != theirs ? mine > theirs : better(all_[a], all_[b]);
        });
    }

    // The best still in play.
    std::int32_t leading() {
        if (bonus_.on()) return *first_of(in_play_, score_);
        while (taken(top_[next_best_])) ++next_best_;
        return top_[next_best_];
    }

    // Who fills so many slots if nothing is drawn, in order, into best_.
    void fit(std::size_t slots) {
        if (bonus_.on()) return complete(slots);
        std::erase_if(best_, [&](std::int32_t i) { return taken(i); });
        best_.resize(std::min(best_.size(), slots));
    }

    // The same with a bonus: the best one after the other. With it what each in play is worth to the slots that are
    // left: those in best_ what they add when they are taken, others what they add to all of best_ but the last, in
    // whose place they would stand.
    void complete(std::size_t slots) {
        best_.clear();
        open_ = in_play_;
        worth_ = score_;
        const std::size_t now = bonus_.mark();
        for (slots = std::min(slots, open_.size()); slots > 0; --slots) {
            const auto next = first_of(open_, worth_);
            best_.push_back(*next);
            *next = open_.back();
            open_.pop_back();
            if (slots == 1) break;
            bonus_.cover(row(best_.back()), base_[best_.back()]);
            for (const std::int32_t i : open_) worth_[place_[i]] = bonus_.worth(row(i), base_[i]);
        }
        bonus_.rewind(now);
    }

    // What the slate is worth less if each in play is shown next and greedy slots complete it then, into lost_, in
    // their order; best_ is who would fill it otherwise. What draws lose adds up so to what the whole decision loses.
    // One that takes nothing from best_ only drives out the last of it. So do all where too many take something: slates
    // are completed for EXACT of them at most.
    void charge() {
        constexpr std::ptrdiff_t EXACT = 64;  // as in policy/budgeted.py
        const double last = worth()[place_[best_.back()]];
        lost_.resize(in_play_.size());
        for (std::size_t i = 0; i < lost_.size(); ++i) lost_[i] = last - worth()[i];
        if (!bonus_.on()) return;
        const auto takes = [&](std::int32_t i) { return worth_[place_[i]] != score_[place_[i]]; };
        const auto count = std::ranges::count_if(open_, takes);
        if (count == 0 || count > EXACT) return;
        double whole = 0;
        for (const std::int32_t i : best_) whole += worth_[place_[i]];
        order_front();
        for (const std::int32_t i : open_)
            if (takes(i)) lost_[place_[i]] = std::max(0.0, whole - completed_with(i, best_.size() - 1));
    }

    // What the slots that are left are worth with a candidate and then so many greedy ones.
    double completed_with(std::int32_t candidate, std::size_t more) {
        const std::size_t now = bonus_.mark();
        double value = score_[place_[candidate]];
        filled_.assign(1, candidate);
        for (; more > 0 && filled_.size() < in_play_.size(); --more) {
            bonus_.cover(row(filled_.back()), base_[filled_.back()]);
            const auto [next, worth] = next_greedy();
            value += worth;
            filled_.push_back(next);
        }
        bonus_.rewind(now);
        return value;
    }

    // The best beside those in filled_, and what it is worth. Nobody is worth more than before others were taken, so
    // that few of those in front_ have to be looked at.
    std::pair<std::int32_t, double> next_greedy() const {
        std::int32_t best = -1;
        double most = 0;
        for (const std::int32_t i : front_) {
            if (best >= 0 && score_[place_[i]] < most) break;
            if (std::ranges::find(filled_, i) != filled_.end()) continue;
            const double worth = bonus_.worth(row(i), base_[i]);
            if (best < 0 || worth > most || (worth == most && better(all_[i], all_[best]))) best = i, most = worth;
        }
        return {best, most};
    }

    // Those in play, the best first.
    void order_front() {
        front_ = in_play_;
        std::sort(front_.begin(), front_.end(), [&](std::int32_t a, std::int32_t b) {
            const double mine = score_[place_[a]], theirs = score_[place_[b]];
            return mine != theirs ? mine > theirs : better(all_[a], all_[b]);
        });
    }

    // In the order of those in play.
    const std::vector<double>& worth() const { return bonus_.on() ? worth_ : score_; }

    std::size_t row(std::int32_t candidate) const { return bonus_.row(all_[candidate].node, all_[candidate].id); }

    bool taken(std::int32_t candidate) const { return place_[candidate] < 0; }

    void leave_play(std::int32_t candidate) {
        const std::int32_t hole = place_[candidate], moved = in_play_.back();
        fill(in_play_, hole);
        fill(score_, hole);
        place_[moved] = hole;
        place_[candidate] = -1;
        if (!bonus_.on()) return;
        bonus_.cover(row(candidate), base_[candidate]);
        add_bonus();
    }

    static void fill(auto& values, std::int32_t hole) {
        values[hole] = values.back();
        values.pop_back();
    }

    std::vector<std::int32_t> in_play_;  // unordered; place_ says where each candidate stands, -1 once taken
    std::vector<std::int32_t> place_;
    std::vector<std::int32_t> top_;
    std::vector<double> score_;       // of the candidates in play, in their order
    std::vector<std::int32_t> best_;  // who fills the slots that are left if nothing is drawn, in order
    std::int64_t next_best_ = 0;      // in top_: those before it are taken
    Bonus bonus_;
    std::span<const Candidate> all_;  // and their scores without bonus, where there is one
    std::vector<double> base_;
    std::vector<std::int32_t> open_;  // of complete(): who is not among the slots so far, and what each is worth
    std::vector<double> worth_, lost_;
    std::vector<std::int32_t> front_, filled_;  // of charge(): those in play in order; a candidate and who follows it
};

}  // namespace treetop

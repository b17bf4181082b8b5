// Draws of arms that were added and miss trials: which of them, and what that costs. Knows nothing of trees or models.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace treetop {

// Of each candidate: which part of the trials of its arms is missing, and its score without what the rewards of an arm
// itself say. Empty if no arm is new.
struct Newness {
    std::span<const float> share, prior;
};

// One slot's draw takes a new candidate in proportion to the fourth power of the share of trials that it misses, times
// exp(-gap / near). The gap is by the prior scores, floored at 0, or a trial would end with the first bad luck: how far
// it is below the last of those that would fit by them. A draw is charged the gap, or what it costs by the scores
// themselves if that is less. What a slot covers has no say.
class NewDraws {
public:
    void begin(const Newness& fresh, std::size_t slots) {
        fresh_.clear();
        prior_.assign(fresh.prior.begin(), fresh.prior.end());
        for (float& prior : prior_) prior = std::max(prior, 0.0f);
        for (std::size_t i = 0; i < fresh.share.size(); ++i)
            if (fresh.share[i] > 0) fresh_.push_back({static_cast<std::int32_t>(i), fresh.share[i]});
        if (fresh_.empty()) return;
        last_ = near_ = -1;  // no gap is known yet
        top_.resize(std::min(slots, prior_.size()));
        std::partial_sort_copy(prior_.begin(), prior_.end(), top_.begin(), top_.end(), std::greater{});
    }

    // A candidate that is shown, new or not, is out of play.
    void take(std::int32_t candidate) {
        if (fresh_.empty()) return;
        const auto same = std::lower_bound(top_.begin(), top_.end(), prior_[candidate], std::greater{});
        if (same != top_.end() && *same == prior_[candidate])
            top_.erase(same);
        else
            top_.pop_back();
        if (Fresh* one = find(candidate)) one->share = 0;
    }

    // Weighs the draws of the next slot, of which `best` fill this and all others if nothing is drawn; `cost` says what
    // showing a candidate gives up.
    void weigh(std::span<const std::int32_t> best, double near, const auto& cost) {
        total_ = charge_ = cost_ = 0;
        if (fresh_.empty()) return;
        measure(top_[best.size() - 1], near);
        for (Fresh& one : fresh_) one.weight = one.share * one.share * one.share * one.share;
        for (const std::int32_t candidate : best)
            if (Fresh* one = find(candidate)) one->weight = 0;
        for (Fresh& one : fresh_) {
            if (one.weight <= 0) continue;
            one.weight *= one.nearness;
            total_ += one.weight;
            const double costs = cost(one.candidate);
            charge_ += one.weight * std::min(one.gap, costs);
            cost_ += one.weight * costs;
        }
    }

    bool any() const { return total_ > 0; }

    // Which part of its share a slot spends: where a draw is charged more than `dear`, trials are cheaper elsewhere.
    double part(double dear) const { return any() && mean_charge() > dear ? dear / mean_charge() : 1.0; }

    // Sums over decisions: what they were expected to bring, those of them that lead to new arms, what draws of these
    // were charged, what they cost by the scores, and the second times the part that their slots spend.
    void count(double expected) {
        totals_[0] += expected;
        if (!fresh_.empty()) totals_[1] += expected;
    }

    void spend(double chance, double of_part) {
        if (!fresh_.empty()) totals_[4] += of_part;
        if (chance <= 0) return;
        totals_[2] += chance * mean_charge();
        totals_[3] += chance * cost_ / total_;
    }

    const std::array<double, 5>& totals() const { return totals_; }

    // Of one draw.
    double mean_charge() const { return charge_ / total_; }

    double chance(std::int32_t candidate) const {
        const auto place = at(candidate);
        return place < fresh_.size() ? fresh_[place].weight / total_ : 0.0;
    }

    // Calls f with every candidate that may be drawn, and its chance in one draw.
    void each(const auto& f) const {
        for (const Fresh& one : fresh_)
            if (one.weight > 0) f(one.candidate, one.weight / total_);
    }

    // The one at which the weights add up to this part of all.
    std::int32_t pick(double part) const {
        double left = part * total_;
        std::int32_t last = -1;
        for (const Fresh& one : fresh_) {
            if (one.weight <= 0) continue;
            last = one.candidate;
            if ((left -= one.weight) < 0) break;
        }
        return last;
    }

private:
    struct Fresh {
        std::int32_t candidate;
        double share;                  // 0 once it is out of play
        double weight = 0;             // in the next slot
        double gap = 0, nearness = 1;  // and exp(-gap / near)
    };

    // How far the new ones are below `last`, which most slots share.
    void measure(double last, double near) {
        if (last == last_ && near == near_) return;
        last_ = last;
        near_ = near;
        for (Fresh& one : fresh_) {
            one.gap = std::max(0.0, last - prior_[one.candidate]);
            one.nearness = one.gap > 0 ? std::exp(-one.gap / near) : 1.0;
        }
    }

    std::size_t at(std::int32_t candidate) const {
        const auto found = std::ranges::lower_bound(fresh_, candidate, {}, &Fresh::candidate);
        const bool is_fresh = found != fresh_.end() && found->candidate == candidate;
        return is_fresh ? static_cast<std::size_t>(found - fresh_.begin()) : fresh_.size();
    }

    Fresh* find(std::int32_t candidate) {
        const std::size_t place = at(candidate);
        return place < fresh_.size() ? &fresh_[place] : nullptr;
    }

    std::vector<Fresh> fresh_;                  // the new ones, in the order of the candidates
    std::vector<float> prior_;                  // of all candidates
    std::vector<float> top_;                    // the best of those in play, as many as slots are left
    double last_ = -1, near_ = -1;              // what gaps are measured to, and by
    double total_ = 0, charge_ = 0, cost_ = 0;  // of the weights, times what each is charged, and costs
    std::array<double, 5> totals_{};
};

}  // namespace treetop

// Scores to slots: k - r taken greedily, r drawn one at a time without replacement. Knows nothing of trees or models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "new_draws.hpp"
#include "rng.hpp"
#include "search.hpp"
#include "slate.hpp"
#include "strategy.hpp"

namespace treetop {

struct Choice {
    std::int32_t candidate;  // its place in the list of candidates
    double probability;      // given the slots before it
    bool explored;
};

class Explorer : protected Slate {
public:
    // The slots of Algorithms 1 and 3, lines 8 to 14: at most k, fewer if there are fewer candidates. With `coverage`
    // and a weight, scores have what each candidate adds to the coverage of the slots before: greedy slots then
    // maximise a submodular function.
    const std::vector<Choice>& operator()(std::span<const Candidate> all, std::int64_t k, std::int64_t explore,
                                          const Strategy& strategy, std::uint64_t key, const Newness& fresh = {},
                                          const Coverage* coverage = nullptr, double diversity = 0) {
        const auto n = static_cast<std::int64_t>(all.size());
        const std::int64_t slots = std::min(k, n);
        const std::int64_t greedy = strategy.kind == Kind::greedy ? slots : std::min(k - explore, slots);
        rank(all, slots);
        chosen_.clear();
        if (strategy.kind == Kind::budgeted) {
            weigh(all, fresh, slots);
            diversify(all, coverage, diversity);
            budgeted(slots, greedy, strategy.budget, key);
            return chosen_;
        }
        diversify(all, coverage, diversity);
        for (std::int64_t s = 0; s < greedy; ++s) take(leading(), 1.0, false);
        for (std::int64_t s = greedy; s < slots; ++s) {
            Stream stream(derive(key, static_cast<std::uint64_t>(s)));
            const auto [candidate, probability] = draw(leading(), strategy, stream);
            take(candidate, probability, true);
        }
        return chosen_;
    }

    const NewDraws& new_draws() const { return new_; }

protected:  // for Assessor (probability.hpp), which asks for the chances of given slots
    struct Drawn {
        std::int32_t candidate;
        double probability;
    };

    void rank(std::span<const Candidate> all, std::int64_t slots) {
        Slate::rank(all, slots);
        new_.begin({}, 0);
        weighed_against_ = -1;
    }

    void take(std::int32_t candidate, double probability, bool explored) {
        if (weighed_against_ >= 0) fill(weight_, place_[candidate]);
        new_.take(candidate);
        chosen_.push_back({candidate, probability, explored});
        leave_play(candidate);
    }

    Drawn draw(std::int32_t best, const Strategy& strategy, Stream& stream) {
        const auto left = static_cast<double>(in_play_.size());
        switch (strategy.kind) {
            case Kind::igw:
                return draw_igw(best, std::sqrt(strategy.rate * left), stream);
            case Kind::boltzmann:
                return draw_boltzmann(best, strategy.rate, stream);
            case Kind::epsilon:
                break;
            case Kind::greedy:
            case Kind::budgeted:
                return {best, 1.0};
        }
        const double each = strategy.rate / left;
        const bool uniform = stream.uniform() < strategy.rate;
        const std::int32_t pick = uniform ? in_play_[stream.below(in_play_.size())] : best;
        return {pick, pick == best ? 1.0 - strategy.rate + each : each};
    }

    // Section 3.2 by rejection: uniform among the A' in play, accepted with A' / (A' + gamma gap), otherwise the best.
    Drawn draw_igw(std::int32_t best, double gamma, Stream& stream) {
        const auto left = static_cast<double>(in_play_.size());
        const std::size_t place = place_[best];
        const double top = score_[place];
        const std::size_t pick = stream.below(in_play_.size());
        const double weight = left + gamma * (top - score_[pick]);
        if (pick != place && stream.uniform() * weight < left) return {in_play_[pick], 1.0 / weight};
        weight_.resize(score_.size());  // quotients first, then their sum: the first loop runs several at a time
        for (std::size_t i = 0; i < score_.size(); ++i) weight_[i] = 1.0 / (left + gamma * (top - score_[i]));
        double others = 0;
        for (std::size_t i = 0; i < place; ++i) others += weight_[i];
        for (std::size_t i = place + 1; i < weight_.size(); ++i) others += weight_[i];
        return {best, 1.0 - others};
    }

    // What draws in one slot may be: the best with what the two chances leave, else by exploration or newness weights.
    struct Mixture {
        double explore = 0, fresh = 0;  // chances
        double weights = 0;             // of exploration, their sum
    };

    // What a slot that is drawn may cost: by exploration, by exploration that pays, and for new arms.
    struct Spending {
        double explore = 0, paying = 0, fresh = 0;
        double near = 0;      // what is little for a slot to cost
        double dear = 0;      // what a draw of a new arm may be charged until less is spent on them
        double expected = 0;  // of the whole decision
        double drawn = 0;     // slots
    };

    // Exploration weights beside the scores in play; take() keeps them so. Rewards are not negative: neither are the
    // scores that a cost is measured by. Without any weight, all candidates are alike.
    void weigh(std::span<const Candidate> all, const Newness& fresh, std::int64_t slots) {
        constexpr double next_to_nothing = 1e-9;
        weight_.resize(all.size());
        valued_ = std::ranges::any_of(all, [](const Candidate& c) { return c.value > 0; });
        for (std::size_t i = 0; i < all.size(); ++i) {
            weight_[i] = std::max<double>(all[i].value, next_to_nothing);
            score_[i] = std::max(score_[i], 0.0);
        }
        new_.begin(fresh, static_cast<std::size_t>(slots));
        weighed_against_ = 0;
    }

    // Slots within a budget. What a slot that shows z costs: see charge().
    void budgeted(std::int64_t slots, std::int64_t greedy, const Budget& budget, std::uint64_t key) {
        constexpr std::uint64_t whether_to_evaluate = std::uint64_t{1} << 32;  // beyond the numbers of slots
        const bool evaluates = Stream(derive(key, whether_to_evaluate)).uniform() < budget.evaluation_share;
        const Spending spending = per_slot(slots, slots - greedy, budget);
        new_.count(spending.expected);
        double evaluation = budget.evaluation_share, ordinary = 1 - evaluation;  // likelihoods of the slots so far
        for (std::int64_t s = 0; s < slots; ++s) {
            fit(static_cast<std::size_t>(slots - s));
            const std::size_t best = place_[best_.front()];
            Stream stream(derive(key, static_cast<std::uint64_t>(s)));
            Mixture mixture;
            if (s >= greedy && ordinary > 0) mixture = mix_within(spending, budget.most);
            const double floor = budget.evaluation_floor;
            const std::size_t pick = evaluates ? pick_evenly(best, floor, stream) : pick_from(best, mixture, stream);
            const double even = (pick == best ? 1 - floor : 0) + floor / static_cast<double>(in_play_.size());
            const double drawn = chance(pick, best, mixture);
            const double probability = (evaluation * even + ordinary * drawn) / (evaluation + ordinary);
            evaluation *= even;
            ordinary *= drawn;
            take(in_play_[pick], probability, pick != best);
        }
    }

    // Of an ordinary event, before any slot is taken. In one that evaluates, slot s costs at most floor * (s-th best
    // worth - mean of those from the s-th best on).
    Spending per_slot(std::int64_t slots, std::int64_t drawn, const Budget& budget) {
        constexpr double little = 0.005, much = 0.2;
        best_.assign(top_.begin(), top_.begin() + slots);
        fit(static_cast<std::size_t>(slots));
        double left = 0, expected = 0, cost = 0;
        for (const double one : worth()) left += one;
        for (std::int64_t s = 0; s < slots; ++s) {
            const double one = worth()[best_[s]];  // all are in play, each in its own place
            cost += budget.evaluation_floor * (one - left / static_cast<double>(score_.size() - s));
            left -= one;
            expected += one;
        }
        const double ordinary = (1 - budget.evaluation_share) * static_cast<double>(drawn);
        if (ordinary <= 0) return {};
        const double evaluation = budget.evaluation_share * cost;
        const auto each = [&](double may) { return std::max(0.0, may) / ordinary; };
        const double mean = expected / static_cast<double>(slots);
        return {each(budget.share * expected - evaluation),
                each(budget.paying * expected - evaluation),
                each(budget.new_arms * expected),
                little * mean,
                much * mean,
                expected,
                static_cast<double>(drawn)};
    }

    // The chances with which a slot's draws cost what may be spent, on average, and `most` at most. A draw brings
    // `gain` later, on average: where that is more than it costs, more may be spent, where it is less, less.
    // Who fits into the slots that are left is shown anyway, and not drawn.
    Mixture mix_within(const Spending& spending, double most) {
        Mixture mixture;
        double cost = 0, gain = 0;
        charge();
        drawable_ = weight_;
        for (const std::int32_t i : best_) drawable_[place_[i]] = 0;
        for (std::size_t i = 0; i < drawable_.size(); ++i) {
            mixture.weights += drawable_[i];
            cost += drawable_[i] * lost_[i];
            gain += drawable_[i] * drawable_[i];
        }
        if (mixture.weights == 0) return mixture;
        const auto chance_of = [&](double spend, double costs) { return spend >= most * costs ? most : spend / costs; };
        const double may = !valued_      ? spending.explore
                           : gain < cost ? spending.explore * gain / cost
                                         : std::max(spending.explore, spending.paying * (1 - cost / gain));
        mixture.explore = chance_of(may, cost / mixture.weights);
        new_.weigh(best_, spending.near, [&](std::int32_t candidate) { return lost_[place_[candidate]]; });
        const double part = new_.part(spending.dear);
        if (new_.any()) mixture.fresh = (1 - mixture.explore) * chance_of(spending.fresh * part, new_.mean_charge());
        new_.spend(mixture.fresh, part * spending.expected / spending.drawn);
        return mixture;
    }

    std::size_t pick_evenly(std::size_t best, double floor, Stream& stream) const {
        return stream.uniform() < floor ? stream.below(in_play_.size()) : best;
    }

    std::size_t pick_from(std::size_t best, const Mixture& mixture, Stream& stream) const {
        const double u = stream.uniform();
        if (u < mixture.explore) return pick_by(drawable_, stream.uniform() * mixture.weights);
        if (u < mixture.explore + mixture.fresh) return place_[new_.pick(stream.uniform())];
        return best;
    }

    // Where the cumulative sum passes a number; the last place with a weight if rounding keeps it from doing so.
    static std::size_t pick_by(const std::vector<double>& weights, double left) {
        std::size_t last = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            if (weights[i] <= 0) continue;
            last = i;
            if ((left -= weights[i]) < 0) break;
        }
        return last;
    }

    // Of a place in an ordinary event.
    double chance(std::size_t place, std::size_t best, const Mixture& mixture) const {
        double p = place == best ? 1 - mixture.explore - mixture.fresh : 0;
        if (mixture.explore > 0) p += mixture.explore * drawable_[place] / mixture.weights;
        if (mixture.fresh > 0) p += mixture.fresh * new_.chance(in_play_[place]);
        return p;
    }

    // Proportional to exp(rate * score) (Section 5), by inversion of the cumulative sum.
    Drawn draw_boltzmann(std::int32_t best, double rate, Stream& stream) {
        if (weighed_against_ != best || bonus_.on()) {
            const double top = score_[place_[best]];
            weight_.resize(score_.size());
            for (std::size_t i = 0; i < score_.size(); ++i) weight_[i] = std::exp(rate * (score_[i] - top));
            weighed_against_ = best;
        }
        double total = 0;
        for (const double weight : weight_) total += weight;
        const std::size_t pick = pick_by(weight_, stream.uniform() * total);
        return {in_play_[pick], weight_[pick] / total};
    }

    std::vector<double> weight_;    // likewise; kept from draw to draw, see weighed_against_
    std::vector<double> drawable_;  // the same of one slot's draws
    bool valued_ = false;           // whether any candidate has an exploration value
    NewDraws new_;
    // For which best the weights were made: a candidate (Boltzmann), 0 if they hold for any (budgeted), -1 for none.
    std::int32_t weighed_against_ = -1;
    std::vector<Choice> chosen_;
};

}  // namespace treetop

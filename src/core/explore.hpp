// Scores to slots: k - r taken greedily, r drawn one at a time without replacement. Knows nothing of trees or models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "rng.hpp"
#include "search.hpp"

namespace treetop {

enum class Kind : std::int32_t { greedy = 0, igw = 1, boltzmann = 2, epsilon = 3, cost_aware = 4 };

// The strategy's one parameter: IGW's gamma^2 / A', Boltzmann's beta log N, epsilon, the scale of cost-aware
// exploration.
struct Strategy {
    Kind kind = Kind::greedy;
    double rate = 0;
};

struct Choice {
    std::int32_t candidate;  // its place in the list of candidates
    double probability;      // given the slots before it
    bool explored;
};

class Explorer {
public:
    // The slots of Algorithms 1 and 3, lines 8 to 14: at most k, fewer if there are fewer candidates.
    const std::vector<Choice>& operator()(std::span<const Candidate> all, std::int64_t k, std::int64_t explore,
                                          const Strategy& strategy, std::uint64_t key) {
        const auto n = static_cast<std::int64_t>(all.size());
        const std::int64_t slots = std::min(k, n);
        const std::int64_t greedy = strategy.kind == Kind::greedy ? slots : std::min(k - explore, slots);
        rank(all, slots);
        chosen_.clear();
        for (std::int64_t s = 0; s < greedy; ++s) take(top_[s], 1.0, false);
        std::int64_t next_best = greedy;
        for (std::int64_t s = greedy; s < slots; ++s) {
            while (taken(top_[next_best])) ++next_best;
            Stream stream(derive(key, static_cast<std::uint64_t>(s)));
            const auto [candidate, probability] = draw(all, top_[next_best], strategy, stream);
            take(candidate, probability, true);
        }
        return chosen_;
    }

private:
    struct Drawn {
        std::int32_t candidate;
        double probability;
    };

    // The best `slots` in order: whatever is taken, the best still in play is among them. A score that is not finite
    // (too large weights and contexts overflow) has no place in an order and no probability.
    void rank(std::span<const Candidate> all, std::int64_t slots) {
        in_play_.resize(all.size());
        place_.resize(all.size());
        top_.resize(all.size());
        score_.resize(all.size());
        weighed_against_ = -1;
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

    bool taken(std::int32_t candidate) const { return place_[candidate] < 0; }

    void take(std::int32_t candidate, double probability, bool explored) {
        const std::int32_t hole = place_[candidate], moved = in_play_.back();
        const auto fill = [&](auto& values) {
            values[hole] = values.back();
            values.pop_back();
        };
        fill(in_play_);
        fill(score_);
        place_[moved] = hole;
        place_[candidate] = -1;
        if (weighed_against_ >= 0) fill(weight_);
        chosen_.push_back({candidate, probability, explored});
    }

    Drawn draw(std::span<const Candidate> all, std::int32_t best, const Strategy& strategy, Stream& stream) {
        const auto left = static_cast<double>(in_play_.size());
        switch (strategy.kind) {
            case Kind::igw:
                return draw_igw(best, std::sqrt(strategy.rate * left), stream);
            case Kind::boltzmann:
                return draw_boltzmann(best, strategy.rate, stream);
            case Kind::cost_aware:
                return draw_cost_aware(all, best, strategy.rate, stream);
            case Kind::epsilon:
                break;
            case Kind::greedy:
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

    // The best, but for a chance epsilon of a candidate drawn in proportion to its exploration value. A draw costs
    // `cost` and brings `gain` on average: epsilon = (scale gain / cost)^4, within [rare, often].
    Drawn draw_cost_aware(std::span<const Candidate> all, std::int32_t best, double scale, Stream& stream) {
        constexpr double rare = 1e-3, often = 0.9;
        if (weighed_against_ < 0) weigh_value(all);
        const double top = score_[place_[best]];
        double total = 0, cost = 0, gain = 0;
        for (std::size_t i = 0; i < weight_.size(); ++i) {
            total += weight_[i];
            cost += weight_[i] * (top - score_[i]);
            gain += weight_[i] * weight_[i];
        }
        const double ratio = scale * gain >= cost ? 1 : scale * gain / cost;
        const double epsilon = std::clamp(ratio * ratio * ratio * ratio, rare, often);
        std::size_t pick = place_[best];
        if (stream.uniform() < epsilon) {
            double left = stream.uniform() * total;
            for (pick = 0; pick + 1 < weight_.size(); ++pick)
                if ((left -= weight_[pick]) < 0) break;
        }
        const double drawn = epsilon * weight_[pick] / total;
        return {in_play_[pick], in_play_[pick] == best ? 1.0 - epsilon + drawn : drawn};
    }

    // Exploration values as weights beside the scores in play; take() keeps them so. Without any, all are alike.
    void weigh_value(std::span<const Candidate> all) {
        constexpr double next_to_nothing = 1e-9;
        weight_.resize(in_play_.size());
        for (std::size_t i = 0; i < weight_.size(); ++i)
            weight_[i] = std::max<double>(all[in_play_[i]].value, next_to_nothing);
        weighed_against_ = 0;
    }

    // Proportional to exp(rate * score) (Section 5), by inversion of the cumulative sum.
    Drawn draw_boltzmann(std::int32_t best, double rate, Stream& stream) {
        if (weighed_against_ != best) {
            const double top = score_[place_[best]];
            weight_.resize(score_.size());
            for (std::size_t i = 0; i < score_.size(); ++i) weight_[i] = std::exp(rate * (score_[i] - top));
            weighed_against_ = best;
        }
        double total = 0;
        for (const double weight : weight_) total += weight;
        double left = stream.uniform() * total;
        std::size_t i = 0, last = 0;
        for (; i < in_play_.size(); ++i) {
            if (weight_[i] <= 0) continue;
            last = i;
            if ((left -= weight_[i]) < 0) break;
        }
        return {in_play_[last], weight_[last] / total};
    }

    std::vector<std::int32_t> in_play_;  // unordered; place_ says where each candidate stands, -1 once taken
    std::vector<std::int32_t> place_;
    std::vector<std::int32_t> top_;
    std::vector<double> score_;   // of the candidates in play, in their order
    std::vector<double> weight_;  // likewise; kept from draw to draw, see weighed_against_
    // For which best the weights were made: a candidate (Boltzmann), 0 if they hold for any (cost-aware), -1 for none.
    std::int32_t weighed_against_ = -1;
    std::vector<Choice> chosen_;
};

}  // namespace treetop

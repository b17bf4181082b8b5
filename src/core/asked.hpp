// What a call asks for, checked: a strategy, the width of a search, slots, and which arms each row may see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "eligible.hpp"
#include "explore.hpp"
#include "rows.hpp"
#include "search.hpp"

namespace treetop {

constexpr std::int64_t max_slots = 65536, max_int = std::numeric_limits<std::int32_t>::max();

// A strategy's one parameter, or those of its budget, which may come with counts of trials that are newer than a
// model's.
using Rate = std::variant<double, std::vector<double>, std::tuple<std::vector<double>, const TrialCounts*>>;

inline Budget budget_of(const std::vector<double>& given) {
    if (given.size() != 7) throw std::invalid_argument("a budget has 7 numbers, not " + std::to_string(given.size()));
    const Budget b{given[0], given[1], given[2], given[3], given[4], given[5], given[6]};
    within("budget", b.share, 0.0, 1.0);
    within("evaluation_share", b.evaluation_share, 0.0, 1.0);
    within("evaluation_floor", b.evaluation_floor, 0.0, 1.0);
    within("new_arms_budget", b.new_arms, 0.0, 1.0);
    within("new_arm_trials", b.new_arm_trials, 0.0, 1e9);
    within("paying_budget", b.paying, 0.0, 1.0);
    within("largest_chance", b.most, 0.0, 1.0);
    return b;
}

inline Strategy strategy_of(std::int32_t kind, const Rate& rate) {
    within("strategy", kind, 0, 4);
    const auto* one = std::get_if<double>(&rate);
    Strategy strategy{static_cast<Kind>(kind), one ? *one : 0.0};
    if ((one == nullptr) != (strategy.kind == Kind::budgeted))
        throw std::invalid_argument("strategy " + std::to_string(kind) + " takes " + (one ? "a list" : "one number"));
    within("rate", strategy.rate, 0.0, strategy.kind == Kind::epsilon ? 1.0 : 1e300);
    if (const auto* numbers = std::get_if<std::vector<double>>(&rate)) strategy.budget = budget_of(*numbers);
    if (const auto* counted = std::get_if<std::tuple<std::vector<double>, const TrialCounts*>>(&rate)) {
        strategy.budget = budget_of(std::get<0>(*counted));
        strategy.budget.shown = std::get<1>(*counted);
    }
    return strategy;
}

inline Width width_of(std::int64_t beam, double beta) {
    within<std::int64_t>("beam", beam, 1, max_int);
    within("beta", beta, -1.0, 1.0);
    return {beam, beta};
}

inline void check_slots(std::int64_t k, std::int64_t explore) {
    within<std::int64_t>("k", k, 1, max_slots);
    within<std::int64_t>("explore", explore, 0, k);
}

// What the rows of a call may see: nothing said, one list for all, a list per row, or a prepared mask.
struct Allowed {
    std::int32_t kind = 0;
    std::span<const std::int32_t> listed;
    std::span<const std::int64_t> start;
    const Mask* mask = nullptr;

    Eligible operator[](std::size_t i) const {
        if (mask) return {Eligible::Kind::mask, {}, mask};
        if (kind == 0) return {};  // the lists are then neither looked at nor checked
        const auto mine = start.empty() ? listed : listed.subspan(start[i], start[i + 1] - start[i]);
        return {static_cast<Eligible::Kind>(kind), mine};
    }

    void check(const Layout& tree, std::size_t rows) const {
        within("eligible_kind", kind, 0, 2);
        if (mask && (mask->arms() != tree.arms() || mask->nodes() != tree.nodes()))
            throw std::invalid_argument("the mask is for " + std::to_string(mask->arms()) + " arms and " +
                                        std::to_string(mask->nodes()) + " nodes, the model has " +
                                        std::to_string(tree.arms()) + " and " + std::to_string(tree.nodes()));
        if (kind == 0 && !mask) return;
        if (!start.empty() && (start.size() != rows + 1 || start.front() != 0 ||
                               start.back() != static_cast<std::int64_t>(listed.size())))
            throw std::invalid_argument("eligible lists do not fit " + std::to_string(rows) + " contexts");
        const std::size_t lists = start.empty() ? 1 : rows;
        for (std::size_t i = 0; i < lists; ++i) {
            if (!start.empty() && (start[i + 1] < start[i] || start[i + 1] > start.back()))
                throw std::invalid_argument("eligible lists do not fit: row " + std::to_string(i));
            const Eligible allowed = (*this)[i];
            check_list(allowed.positions, tree);
            if (!allowed.any_below(0, 0, static_cast<std::int32_t>(tree.arms())))
                throw std::invalid_argument("row " + std::to_string(i) + ": none of the " +
                                            std::to_string(tree.arms()) + " arms is eligible");
        }
    }

    static void check_list(std::span<const std::int32_t> listed, const Layout& tree) {
        const auto arms = static_cast<std::int32_t>(tree.arms());
        for (std::size_t i = 0; i < listed.size(); ++i) {
            if (listed[i] < 0 || listed[i] >= arms)
                throw std::invalid_argument("position " + std::to_string(listed[i]) + " is outside [0, " +
                                            std::to_string(arms) + ")");
            if (i > 0 && listed[i] <= listed[i - 1])
                throw std::invalid_argument("positions must rise strictly: " + std::to_string(listed[i]) + " after " +
                                            std::to_string(listed[i - 1]));
        }
    }
};

}  // namespace treetop

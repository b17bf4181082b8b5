// How slots are drawn, by name: which strategy, and what it may spend. Draws nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trial_counts.hpp"

namespace treetop {

enum class Kind : std::int32_t { greedy = 0, igw = 1, boltzmann = 2, epsilon = 3, budgeted = 4 };

// What budgeted exploration may spend; docs/learner-formulas.md has the formulas.
struct Budget {
    double share = 0;             // of a decision's expected reward
    double evaluation_share = 0;  // of the events, in which every slot is drawn
    double evaluation_floor = 0;  // how much of such a draw is uniform
    double new_arms = 0;          // of a decision's expected reward, for arms that were added
    double new_arm_trials = 0;    // showings until an added arm is like any other
    double paying = 0;            // of a decision's expected reward, at most, where a draw brings more than it costs
    double most = 0;              // the largest chance of a draw by either budget
    const TrialCounts* shown = nullptr;  // counts of trials since those of the model

    // With as much of `paying` as can be spent until the next refit, after a fifth more rounds, if nothing is found:
    // then all draws have cost `share` of all rewards more than what they found has earned. `net` is the latter less
    // what they cost so far, as a share of all rewards.
    Budget after(double net) const {
        constexpr double until_refit = 0.2;
        Budget now = *this;
        now.paying = std::min(paying, std::max(0.0, (share + net) / until_refit));
        return now;
    }
};

// The strategy's one parameter (IGW's gamma^2 / A', Boltzmann's beta log N, epsilon), or its budget.
struct Strategy {
    Kind kind = Kind::greedy;
    double rate = 0;
    Budget budget = {};
};

}  // namespace treetop

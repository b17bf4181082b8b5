// What a search returns, and how its results are ranked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model.hpp"

namespace treetop {

// What the search returns: an arm of a surviving leaf (S_x), or a pruned node standing for all its arms (I_x).
struct Candidate {
    std::int32_t id = 0;
    bool node = false;
    float score = 0;              // the reward model's estimate
    float value = 0;              // of exploring it: what showing it brings later, by what it teaches
    double route = 0;             // log of the product of routing scores down to the leaf or node
    float own = 0, measured = 0;  // terms of the score: of its regressor, of its vector
    std::int32_t position = -1;   // of an arm, in tree order
};

// The terms of a score, as many as the model's scores have; the pooled mean follows from the route.
inline void put_components(const Model& model, const Candidate& candidate, float* out) {
    const std::size_t n = model.components();
    if (n == 0) return;
    out[0] = candidate.node ? model.pooled.node_mean : model.pooled.mean(candidate.route);
    out[1] = candidate.own;
    if (n > 2) out[2] = candidate.measured;
}

// The score without what the rewards of the arm itself say.
inline float prior_score(const Model& model, const Candidate& candidate) {
    return candidate.score - model.pooled.weights[1] * candidate.own;
}

// Better: a higher score; on a tie single arms before nodes, then the lower id.
inline bool better(const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.node != b.node) return b.node;
    return a.id < b.id;
}

// How the search narrows: at most `beam` nodes a level (beta < 0), or every node whose routing score exceeds beta.
struct Width {
    std::int64_t beam = 10;
    double beta = -1;
};

}  // namespace treetop

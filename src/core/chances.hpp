// What is asked of policies about given slots: their chances, and what the policy that served may show there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace treetop {

// One row of each array per context, k slots wide; slots without an arm hold 0 (-2 for nodes).
struct Chances {
    std::vector<double> probability;  // of the arm, given the slots before it
    std::vector<std::int32_t> nodes;  // -1: an arm by itself; the node that it would come through; -2: not to be shown
    std::vector<double> score;        // of the effective arm that stands for it, in [0, 1]
    std::vector<double> expected;     // the mean of that over what the slot may show (and the served policy too)
    std::vector<double> covered;      // the chance that the slot shows what the served policy may show; NaN without one
    std::vector<double> largest;      // how many times as likely as there anything is in the slot at most; likewise
    std::size_t D;                    // groupings of the arms
    std::vector<double> grouped;      // D a slot: the chance that the slot shows an arm of the same group

    Chances(std::size_t rows, std::size_t k, std::size_t D_, bool beside)
        : probability(rows * k, 0),
          nodes(rows * k, -2),
          score(rows * k, 0),
          expected(rows * k, 0),
          covered(rows * k, beside ? 0 : std::numeric_limits<double>::quiet_NaN()),
          largest(rows * k, beside ? 0 : std::numeric_limits<double>::quiet_NaN()),
          D(D_),
          grouped(rows * k * D_, 0) {}
};

// What a policy may show in each slot of one context: effective arms as positions of the tree, in their order, and the
// chance of each of their arms.
struct Shown {
    struct Piece {
        std::int32_t first, last;  // positions
        std::int32_t count;        // eligible arms
    };
    std::vector<Piece> pieces;
    std::vector<double> chance;  // a piece, slot by slot, and 0 behind those of a slot

    const double* slot(std::size_t s) const { return chance.data() + s * (pieces.size() + 1); }
};

// Sums over what both policies may show: chances, times scores, and the largest ratio.
struct Meeting {
    std::array<double, 4> covered{}, expected{}, largest{};

    void add(std::size_t j, double one, double mass, double score, double served) {
        const double both = served > 0 ? mass : 0;
        const double ratio = one / (served > 0 ? served : std::numeric_limits<double>::infinity());
        covered[j] += both;
        expected[j] += both * score;
        largest[j] = std::max(largest[j], ratio);
    }
};

}  // namespace treetop

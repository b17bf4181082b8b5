// Sums of the vectors of the arms below every node: what centres of a measure's routing are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel.hpp"

namespace treetop {

// Vectors of d numbers, those of a leaf added in the order of its arms, then those of children from the last node on:
// the sums do not depend on the threads. `begin` and `end` are of positions, `arm_at` says which arm is at each.
inline std::vector<double> node_sums(std::span<const std::int32_t> parents, std::span<const std::int32_t> begin,
                                     std::span<const std::int32_t> end, std::span<const std::int32_t> arm_at,
                                     std::span<const float> vectors, std::size_t d, int threads) {
    std::vector<std::uint8_t> inner(parents.size(), 0);
    for (std::size_t node = 1; node < parents.size(); ++node) inner[parents[node]] = 1;
    std::vector<double> sums(parents.size() * d, 0.0);
    parallel_for(parents.size(), threads, 64, [&](int, std::size_t node) {
        if (inner[node]) return;
        double* mine = sums.data() + node * d;
        for (std::int32_t p = begin[node]; p < end[node]; ++p) {
            const float* vector = vectors.data() + static_cast<std::size_t>(arm_at[p]) * d;
            for (std::size_t j = 0; j < d; ++j) mine[j] += vector[j];
        }
    });
    for (std::size_t node = parents.size() - 1; node > 0; --node) {
        double* above = sums.data() + static_cast<std::size_t>(parents[node]) * d;
        for (std::size_t j = 0; j < d; ++j) above[j] += sums[node * d + j];
    }
    return sums;
}

}  // namespace treetop

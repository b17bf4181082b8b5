// The pooled mean at a routing score, with the same bytes on every machine: libraries differ in the last bit of a cube
// root.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace treetop {

constexpr double widest_slack = 4;

// By the upper bits of a number m * 2^e, m in [1/2, 1): the cube root of 2^e. 0 for 0 and what is below normal
// numbers, infinity for infinity.
inline constexpr auto root_of_power = [] {
    constexpr double root = 1.2599210498948731648, square = 1.5874010519681994748;  // of 2, and its square
    constexpr double rest[5] = {1 / square, 1 / root, 1, root, square};             // e % 3 from -2 to 2
    std::array<double, 2048> table{};
    for (int upper = 1; upper < 2047; ++upper) {
        const int e = upper - 1022;
        table[upper] = rest[2 + e % 3] * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + e / 3) << 52);
    }
    table[2047] = std::numeric_limits<double>::infinity();
    return table;
}();

// The cube root of a number that is not negative, within 1e-15 of it: a polynomial and a step of Halley's method
// for m, times the root of 2^e. Ulrich Drepper's, as in glibc 2.36, without a branch.
inline double cube_root(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto m = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3fe0000000000000);
    const double u =
        0.354895765043919860 +
        (1.50819193781584896 -
         (2.11499494167371287 -
          (2.4469312256353444 - (1.83469277483613086 - (0.784932344976639262 - 0.145263899385486367 * m) * m) * m) *
              m) *
             m) *
            m;
    const double cube = u * u * u;
    return u * (cube + 2.0 * m) / (2.0 * cube + m) * root_of_power[bits >> 52 & 0x7ff];
}

// log g(x) of a linear routing function: g = exp(-max(0, 1 - w.[x; 1])^3).
inline double log_linear(float dot) {
    const double slack = std::max(0.0, 1.0 - static_cast<double>(dot));
    return -(slack * slack * slack);
}

// The cube root of -log g: for linear routing on one level, 1 - w.[x; 1].
inline double slack_of(double route) { return std::min(cube_root(std::abs(route)), widest_slack); }

// Means at evenly spaced slacks in [0, widest_slack], linear in between.
inline float mean_at(std::span<const float> means, double route) {
    const double place = slack_of(route) / widest_slack * static_cast<double>(means.size() - 1);
    const auto i = std::min(static_cast<std::int32_t>(place), static_cast<std::int32_t>(means.size()) - 2);
    const auto part = static_cast<float>(place - static_cast<double>(i));
    const float* mean = means.data() + i;
    return mean[0] + part * (mean[1] - mean[0]);
}

}  // namespace treetop

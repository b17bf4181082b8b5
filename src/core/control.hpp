// What logged rounds say of a candidate policy, with control variates (treetop/evaluation/control.py has the formulas),
// and how often each value came. Knows nothing of policies or logs.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace treetop {

// Rounds of up to k slots, row by row, filled slots first; see Judged. `covered` and `largest` may be NaN: not known.
struct JudgedRounds {
    std::size_t n, k;
    std::span<const double> weights;  // of the slots up to each
    std::span<const double> rewards, score, expected, covered, largest;
    std::span<const std::int32_t> slots;  // a round
};

// For each slot g = level + slope * score, and its mean reward; one for all rounds, or one a round.
struct ControlLines {
    std::span<const double> level, slope, mean;
};

class Controls {
public:
    // `bound` is what no weight can exceed, for slots whose largest is not known.
    Controls(const JudgedRounds& rounds, const ControlLines& lines, bool whole, double bound)
        : rounds_(rounds),
          lines_(lines),
          whole_(whole),
          bound_(bound),
          stride_(lines.level.size() == rounds.k ? 0 : rounds.k) {}

    // What round i says of the value and of its complement, for every cap: terms less what is taken off.
    void operator()(std::size_t i, std::span<const double> caps, std::span<double> value,
                    std::span<double> complement) {
        const std::size_t row = i * rounds_.k, line = i * stride_;
        const auto m = static_cast<std::size_t>(rounds_.slots[i]);
        const double* w = rounds_.weights.data() + row;
        double said = 0, missed = 0, to_come = 0, shown = 0;
        for (std::size_t s = 0; s < m; ++s) {
            const double weight = whole_ ? w[m - 1] : w[s], reward = rounds_.rewards[row + s];
            said += weight * reward;
            missed += weight * (1 - reward);
            to_come += lines_.mean[line + s];
        }
        std::ranges::fill(value, 0.0);
        std::ranges::fill(complement, 0.0);
        double before = 1;
        for (std::size_t s = 0; s < m; ++s) {
            const double level = lines_.level[line + s], slope = lines_.slope[line + s];
            const double known = rounds_.covered[row + s], largest = rounds_.largest[row + s];
            const double covered = std::isnan(known) ? 1 : known;
            const double most = std::isnan(largest) ? bound_ : before * largest;
            const double g = level + slope * rounds_.score[row + s];
            const double expected = level * covered + slope * rounds_.expected[row + s];
            to_come -= lines_.mean[line + s];
            const double others = shown + to_come;
            const double all = static_cast<double>(whole_ ? m : m - s);
            const double mean = others * covered + expected;
            const double top = others + std::max(level, level + slope);
            const double top_left = all - others - std::min(level, level + slope);
            limit(caps, w[s] * (others + g), before * mean, most * top, value);
            limit(caps, w[s] * (all - others - g), before * (all * covered - mean), most * top_left, complement);
            if (whole_) shown += g;
            before = w[s];
        }
        for (double& off : value) off = said - off;
        for (double& off : complement) off = missed - off;
    }

private:
    // Adds e (found - expected), where e <= 1 keeps the sum at most at the cap, whatever is found, `top` at most.
    static void limit(std::span<const double> caps, double found, double expected, double top, std::span<double> off) {
        const double rise = std::max(top - expected, std::numeric_limits<double>::min());
        for (std::size_t c = 0; c < caps.size(); ++c) {
            const double share = std::isinf(caps[c]) ? 1.0 : std::clamp((caps[c] - off[c]) / rise, 0.0, 1.0);
            if (share > 0) off[c] += share * (found - expected);
        }
    }

    const JudgedRounds& rounds_;
    const ControlLines& lines_;
    bool whole_;
    double bound_;
    std::size_t stride_;
};

// Places of values among edges that grow, found by the first bits of a value: edges about 5 % apart have at most one
// edge in each of the 32 steps of an octave.
class EdgeCounter {
public:
    explicit EdgeCounter(std::span<const double> edges) : edges_(edges) {
        if (edges.size() < 2 || !std::is_sorted(edges.begin(), edges.end()))
            throw std::invalid_argument("edges must be two or more, in order");
        const auto zero = std::lower_bound(edges.begin(), edges.end(), 0.0);
        for (const bool negative : {false, true}) {
            auto& first = negative ? below_ : above_;
            first.resize(STEPS);
            // Negative values grow as their bits fall: the step of a value begins at its largest magnitude.
            for (std::size_t step = 0; step < STEPS; ++step) {
                const double smallest = negative ? -magnitude(step + 1) : magnitude(step);
                const auto from = negative ? edges.begin() : zero;
                first[step] = static_cast<std::int32_t>(std::lower_bound(from, edges.end(), smallest) - edges.begin());
            }
        }
    }

    // Adds a value to the two edges around it, in proportion. A value beyond the last edge counts as that.
    void add(double value, std::span<double> counts) const {
        value = std::min(value, edges_.back());
        if (!(value >= edges_.front()))
            throw std::invalid_argument("a value is " + std::to_string(value) + "; bets take values from " +
                                        std::to_string(edges_.front()) + " on");
        const std::size_t at = place(value);
        const double share = (value - edges_[at - 1]) / (edges_[at] - edges_[at - 1]);
        counts[at] += share;
        counts[at - 1] += 1 - share;
    }

private:
    static constexpr int BITS = 5, SHIFT = 52 - BITS;
    static constexpr std::uint64_t LOWEST = std::uint64_t{1023 - 40} << BITS;  // 2^-40 and below are one step
    static constexpr std::size_t STEPS = std::size_t{120} << BITS;             // up to 2^80

    // Where a step begins; the first holds all that is smaller.
    static double magnitude(std::size_t step) {
        return step == 0 ? 0.0 : std::bit_cast<double>((LOWEST + step) << SHIFT);
    }

    std::size_t place(double value) const {
        const std::uint64_t bits = std::bit_cast<std::uint64_t>(std::abs(value)) >> SHIFT;
        const std::size_t step = bits <= LOWEST ? 0 : std::min<std::size_t>(bits - LOWEST, STEPS - 1);
        auto at = static_cast<std::size_t>((value < 0 ? below_ : above_)[step]);
        while (at < edges_.size() && edges_[at] < value) ++at;
        return std::clamp<std::size_t>(at, 1, edges_.size() - 1);
    }

    std::span<const double> edges_;
    std::vector<std::int32_t> above_, below_;  // for each step: the first edge that is no smaller than all of it
};

}  // namespace treetop

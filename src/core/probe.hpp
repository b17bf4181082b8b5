// What a decision costs, for measurements: the lines that it reads, how long they take alone, how long its stages take.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "decide.hpp"

namespace treetop {

using Clock = std::chrono::steady_clock;

inline double seconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

// The numbers of the layout's lines that a search reads, each once, in the order in which it first reads them.
inline std::vector<std::int64_t> lines_read(Decider& decider, std::span<const std::byte> layout, const Row& x,
                                            const Width& width, std::size_t wanted) {
    std::unordered_set<const std::byte*> seen;
    std::vector<std::int64_t> numbers;
    for (const std::byte* line : decider.trace(x, width, wanted, {}))
        if (seen.insert(line).second)
            numbers.push_back((line - layout.data()) / static_cast<std::ptrdiff_t>(line_bytes));
    return numbers;
}

// Reads one word of each of these lines and nothing else: seconds, and the sum of the words.
inline std::pair<double, std::uint64_t> touch(std::span<const std::byte> layout,
                                              std::span<const std::int64_t> numbers) {
    const auto began = Clock::now();
    std::uint64_t sum = 0, word = 0;
    for (const std::int64_t number : numbers) {
        std::memcpy(&word, layout.data() + static_cast<std::size_t>(number) * line_bytes, sizeof word);
        sum += word;
    }
    return {seconds(began, Clock::now()), sum};
}

// Seconds of one decision: down the tree, the arms of the leaves, the choice among them.
inline std::array<double, 3> stages(Decider& decider, const Row& x, const Ask& ask, std::uint64_t key,
                                    std::size_t components) {
    Slots slots(1, static_cast<std::size_t>(ask.k), components);
    Decider::Reached reached;
    const auto began = Clock::now();
    decider.decide(x, ask, {}, key, 0, slots, &reached);
    return {seconds(began, reached[0]), seconds(reached[0], reached[1]), seconds(reached[1], Clock::now())};
}

}  // namespace treetop

// The arms that an attribute's values allow, as bits. Knows positions in the order of a value, not what the value is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "eligible.hpp"

namespace treetop {

// Positions sorted by a value, with the set of the first so many of them kept as bits at some cuts: the set of any
// range of values is two of these and the few positions up to the nearest cut (range-encoded bitmaps; Chan, Ioannidis
// 1998).
class SortedPositions {
public:
    // `cuts` rise strictly within [1, order.size()].
    SortedPositions(std::size_t arms, std::span<const std::int32_t> order, std::span<const std::int64_t> cuts)
        : arms_(arms), words_(arms / 64 + 1), order_(order.begin(), order.end()), cuts_(cuts.begin(), cuts.end()) {
        std::vector<std::uint64_t> now(words_, 0);
        sets_.reserve(words_ * cuts_.size());
        std::size_t at = 0;
        for (const std::int64_t cut : cuts_) {
            for (; at < static_cast<std::size_t>(cut); ++at) flip_one(now, order_[at]);
            sets_.insert(sets_.end(), now.begin(), now.end());
        }
    }

    std::size_t arms() const { return arms_; }
    std::size_t size() const { return order_.size(); }

    // The bits of the positions from the `first` in the order to before the `last`, and no others.
    std::vector<std::uint64_t> bits_of(std::size_t first, std::size_t last) const {
        if (last - first <= words_ / 4) {
            std::vector<std::uint64_t> few(words_, 0);
            flip_between(few, first, last);
            return few;
        }
        const auto [cut, from] = nearest(last);
        std::vector<std::uint64_t> bits =
            from > 0 ? std::vector<std::uint64_t>(set(cut), set(cut) + words_) : std::vector<std::uint64_t>(words_, 0);
        flip_between(bits, from, last);
        if (first > 0) flip_first(bits, first);
        return bits;
    }

    // Flips the bits of the positions from the `first` in the order to before the `last`.
    void flip(std::span<std::uint64_t> bits, std::size_t first, std::size_t last) const {
        if (last - first <= words_ / 4) {
            for (std::size_t i = first; i < last; ++i) flip_one(bits, order_[i]);
            return;
        }
        flip_first(bits, first);
        flip_first(bits, last);
    }

private:
    template <class Bits>
    static void flip_one(Bits& bits, std::int32_t position) {
        bits[static_cast<std::size_t>(position) / 64] ^= std::uint64_t{1} << (position % 64);
    }

    // The cut that is nearest to a place in the order, or none, and where it is.
    std::pair<std::size_t, std::size_t> nearest(std::size_t count) const {
        const auto wanted = static_cast<std::int64_t>(count);
        const std::size_t after = std::lower_bound(cuts_.begin(), cuts_.end(), wanted) - cuts_.begin();
        const std::int64_t low = after > 0 ? cuts_[after - 1] : 0;
        if (after < cuts_.size() && cuts_[after] - wanted < wanted - low)
            return {after, static_cast<std::size_t>(cuts_[after])};
        return {after - 1, static_cast<std::size_t>(low)};
    }

    const std::uint64_t* set(std::size_t cut) const { return sets_.data() + cut * words_; }

    void flip_between(std::span<std::uint64_t> bits, std::size_t one, std::size_t other) const {
        for (std::size_t i = std::min(one, other); i < std::max(one, other); ++i) flip_one(bits, order_[i]);
    }

    void flip_first(std::span<std::uint64_t> bits, std::size_t count) const {
        const auto [cut, from] = nearest(count);
        if (from > 0) {
            const std::uint64_t* kept = set(cut);
            for (std::size_t w = 0; w < words_; ++w) bits[w] ^= kept[w];
        }
        flip_between(bits, from, count);
    }

    std::size_t arms_, words_;
    std::vector<std::int32_t> order_;
    std::vector<std::int64_t> cuts_;
    std::vector<std::uint64_t> sets_;  // the bits at every cut
};

// One condition of a filter: ranges (first, last) in the order of an attribute, apart from each other.
struct Condition {
    const SortedPositions* sorted;
    std::span<const std::int64_t> ranges;
};

// The arms that meet every condition, of those of `base` and `only` where they are given, without the `banned` ones.
inline Mask filtered(std::size_t arms, std::size_t nodes, std::span<const Condition> conditions, const Mask* base,
                     const std::span<const std::int32_t>* only, std::span<const std::int32_t> banned) {
    const std::size_t words = arms / 64 + 1;
    std::vector<std::uint64_t> bits;
    const auto both = [&](const auto& word) {
        for (std::size_t w = 0; w < words; ++w) bits[w] &= word(w);
    };
    const auto add = [&](std::vector<std::uint64_t>&& more) {
        if (bits.empty())
            bits = std::move(more);
        else
            both([&](std::size_t w) { return more[w]; });
    };
    for (const Condition& condition : conditions) {
        const auto ranges = condition.ranges;
        const bool any = ranges.size() >= 2;
        auto mine =
            any ? condition.sorted->bits_of(static_cast<std::size_t>(ranges[0]), static_cast<std::size_t>(ranges[1]))
                : std::vector<std::uint64_t>(words, 0);
        for (std::size_t i = 2; i + 1 < ranges.size(); i += 2)
            condition.sorted->flip(mine, static_cast<std::size_t>(ranges[i]), static_cast<std::size_t>(ranges[i + 1]));
        add(std::move(mine));
    }
    if (only) {
        std::vector<std::uint64_t> mine(words, 0);
        for (const std::int32_t p : *only) mine[static_cast<std::size_t>(p) / 64] |= std::uint64_t{1} << (p % 64);
        add(std::move(mine));
    }
    if (bits.empty()) {
        bits.assign(words, ~std::uint64_t{0});
        bits.back() = (std::uint64_t{1} << (arms % 64)) - 1;
    }
    if (base) both([&](std::size_t w) { return base->word(w); });
    for (const std::int32_t p : banned) bits[static_cast<std::size_t>(p) / 64] &= ~(std::uint64_t{1} << (p % 64));
    return Mask(arms, nodes, std::move(bits));
}

}  // namespace treetop

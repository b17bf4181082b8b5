// The arms that an attribute's values allow, as bits. Knows positions in the order of a value, not what the value is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "eligible.hpp"
#include "simd.hpp"

namespace treetop {

// Positions sorted by a value, with the set of the first so many of them kept as bits at some cuts: the set of any
// range of values is two of these and the few positions up to the nearest cut (range-encoded bitmaps; Chan, Ioannidis
// 1998).
class SortedPositions {
public:
    // `cuts` rise strictly within [1, order.size()].
    SortedPositions(std::size_t arms, std::span<const std::int32_t> order, std::span<const std::int64_t> cuts)
        : arms_(arms),
          words_(arms / 64 + 1),
          order_(order.begin(), order.end()),
          place_(64 * words_, -1),
          cuts_(cuts.begin(), cuts.end()) {
        for (std::size_t i = 0; i < order_.size(); ++i)
            place_[static_cast<std::size_t>(order_[i])] = static_cast<std::int32_t>(i);
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

    // The set of the first `count` of the order, if it is kept; nullptr if it is not.
    const std::uint64_t* kept(std::size_t count) const {
        const auto found = std::lower_bound(cuts_.begin(), cuts_.end(), static_cast<std::int64_t>(count));
        if (found == cuts_.end() || *found != static_cast<std::int64_t>(count)) return nullptr;
        return set(static_cast<std::size_t>(found - cuts_.begin()));
    }

    // Where in the order each of the 64 positions of a word stands; -1 if it has no value.
    std::span<const std::int32_t, 64> places(std::size_t word) const {
        return std::span<const std::int32_t, 64>(place_.data() + 64 * word, 64);
    }

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
    std::vector<std::int32_t> place_;  // of each position in the order
    std::vector<std::int64_t> cuts_;
    std::vector<std::uint64_t> sets_;  // the bits at every cut
};

// One condition of a filter: ranges (first, last) in the order of an attribute, apart from each other.
class Condition {
public:
    Condition(const SortedPositions& sorted, std::span<const std::int64_t> ends)
        : sorted_(&sorted), ranges_(ends.begin(), ends.end()) {
        for (const std::int64_t end : ranges_) {
            const auto* set = end > 0 ? sorted.kept(static_cast<std::size_t>(end)) : nullptr;
            if (set) sets_.push_back(set);
            if (end > 0 && !set) {
                sets_.clear();
                return;
            }
        }
    }

    // From the sets of all ends, where they are kept, as those of flags are; else by comparing.
    std::uint64_t word(std::size_t w) const {
        std::uint64_t bits = 0;
        for (const std::uint64_t* set : sets_) bits ^= set[w];
        if (!sets_.empty() || ranges_.empty()) return bits;
        const auto places = sorted_->places(w);
        std::array<std::uint8_t, 64> meets{};  // bytes first, then bits: the loop runs many at a time
        for (std::size_t i = 0; i + 1 < ranges_.size(); i += 2) {
            const auto first = static_cast<std::uint32_t>(ranges_[i]);
            const auto length = static_cast<std::uint32_t>(ranges_[i + 1]) - first;
            for (std::size_t p = 0; p < 64; ++p)
                meets[p] |= static_cast<std::uint32_t>(places[p]) - first < length ? 1 : 0;
        }
        for (std::size_t byte = 0; byte < 8; ++byte) {
            std::uint64_t eight = 0;
            for (std::size_t i = 0; i < 8; ++i) eight |= std::uint64_t{meets[8 * byte + i]} << (8 * i);
            bits |= (eight * 0x0102040810204080u >> 56) << (8 * byte);
        }
        return bits;
    }

    bool bit(std::size_t position) const {
        const std::size_t w = position / 64, at = position % 64;
        if (!sets_.empty()) return (word(w) >> at & 1) != 0;
        const auto place = static_cast<std::int64_t>(sorted_->places(w)[at]);
        for (std::size_t i = 0; i + 1 < ranges_.size(); i += 2)
            if (ranges_[i] <= place && place < ranges_[i + 1]) return true;
        return false;
    }

    void ask(std::size_t w) const {
        constexpr std::size_t a_line = line_bytes / sizeof(std::int32_t);
        for (const std::uint64_t* set : sets_) prefetch(set + w);
        if (!sets_.empty()) return;
        const auto places = sorted_->places(w);
        for (std::size_t i = 0; i < places.size(); i += a_line) prefetch(places.data() + i);
    }

    std::vector<std::uint64_t> words() const {
        const auto at = [&](std::size_t i) { return static_cast<std::size_t>(ranges_[i]); };
        if (ranges_.empty()) return std::vector<std::uint64_t>(sorted_->arms() / 64 + 1, 0);
        auto bits = sorted_->bits_of(at(0), at(1));
        for (std::size_t i = 2; i + 1 < ranges_.size(); i += 2) sorted_->flip(bits, at(i), at(i + 1));
        return bits;
    }

private:
    const SortedPositions* sorted_;
    std::vector<std::int64_t> ranges_;
    std::vector<const std::uint64_t*> sets_;  // of the ends of all ranges, if every one is kept
};

// The arms that meet every condition, of those of `base` where it is given. What the conditions and the base point to
// outlives it.
class ConditionBits final : public BitSource {
public:
    ConditionBits(std::vector<Condition> conditions, const Mask* base)
        : conditions_(std::move(conditions)), base_(base) {}

    std::uint64_t word(std::size_t w) const override {
        std::uint64_t bits = base_ ? base_->word(w) : ~std::uint64_t{0};
        for (const Condition& condition : conditions_) bits &= condition.word(w);
        return bits;
    }

    bool bit(std::size_t position) const override {
        const auto p = static_cast<std::int32_t>(position);
        return (!base_ || base_->any(p, p + 1)) &&
               std::ranges::all_of(conditions_, [&](const Condition& condition) { return condition.bit(position); });
    }

    void ask(std::size_t w) const override {
        for (const Condition& condition : conditions_) condition.ask(w);
    }

    std::vector<std::uint64_t> words() const override {
        std::vector<std::uint64_t> bits = conditions_.front().words();
        for (std::size_t i = 1; i < conditions_.size(); ++i) {
            const auto more = conditions_[i].words();
            for (std::size_t w = 0; w < bits.size(); ++w) bits[w] &= more[w];
        }
        if (base_)
            for (std::size_t w = 0; w < bits.size(); ++w) bits[w] &= base_->word(w);
        return bits;
    }

private:
    std::vector<Condition> conditions_;
    const Mask* base_;
};

// The same and of those at the positions `only` where they are given, without the `banned` ones. Without such lists the
// bits are computed as they are asked for.
inline Mask filtered(std::size_t arms, std::size_t nodes, std::vector<Condition> conditions, const Mask* base,
                     const std::span<const std::int32_t>* only, std::span<const std::int32_t> banned) {
    if (!only && banned.empty() && !conditions.empty())
        return Mask(arms, nodes, std::make_unique<ConditionBits>(std::move(conditions), base));
    const std::size_t words = arms / 64 + 1;
    std::vector<std::uint64_t> bits;
    if (conditions.empty()) {
        bits.assign(words, ~std::uint64_t{0});
        bits.back() = (std::uint64_t{1} << (arms % 64)) - 1;
        if (base)
            for (std::size_t w = 0; w < words; ++w) bits[w] &= base->word(w);
    } else {
        bits = ConditionBits(std::move(conditions), base).words();
    }
    if (only) {
        std::vector<std::uint64_t> mine(words, 0);
        for (const std::int32_t p : *only) mine[static_cast<std::size_t>(p) / 64] |= std::uint64_t{1} << (p % 64);
        for (std::size_t w = 0; w < words; ++w) bits[w] &= mine[w];
    }
    for (const std::int32_t p : banned) bits[static_cast<std::size_t>(p) / 64] &= ~(std::uint64_t{1} << (p % 64));
    return Mask(arms, nodes, std::move(bits));
}

}  // namespace treetop

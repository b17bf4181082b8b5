// The arms that meet conditions on attributes, as bits that are computed when they are asked for. Knows ranges in the
// order of a value, not what the value is.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "attribute_index.hpp"
#include "eligible.hpp"
#include "simd.hpp"

namespace treetop {

// Which of the 64 numbers of a word are in ranges [first, last), given as first, last, first, last, ...
inline std::uint64_t in_ranges(std::span<const std::int32_t, 64> places, std::span<const std::int64_t> ranges) {
    std::array<std::uint8_t, 64> meets{};  // bytes first, then bits: the loop runs many at a time
    for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) {
        const auto first = static_cast<std::uint32_t>(ranges[i]);
        const auto length = static_cast<std::uint32_t>(ranges[i + 1]) - first;
        for (std::size_t p = 0; p < 64; ++p) meets[p] |= static_cast<std::uint32_t>(places[p]) - first < length ? 1 : 0;
    }
    std::uint64_t bits = 0;
    for (std::size_t byte = 0; byte < 8; ++byte) {
        std::uint64_t eight = 0;
        for (std::size_t i = 0; i < 8; ++i) eight |= std::uint64_t{meets[8 * byte + i]} << (8 * i);
        bits |= (eight * 0x0102040810204080u >> 56) << (8 * byte);
    }
    return bits;
}

#ifdef TREETOP_X86
// The same, eight numbers at a time. -1 is in no range: as the others it is compared without a sign.
__attribute__((target("avx2"))) inline std::uint64_t in_ranges_by_avx2(std::span<const std::int32_t, 64> places,
                                                                       std::span<const std::int64_t> ranges) {
    std::uint64_t bits = 0;
    for (std::size_t p = 0; p < 64; p += 8) {
        const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(places.data() + p));
        __m256i meets = _mm256_setzero_si256();
        for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) {
            if (ranges[i] >= ranges[i + 1]) continue;
            const __m256i first = _mm256_set1_epi32(static_cast<std::int32_t>(ranges[i]));
            const __m256i most = _mm256_set1_epi32(static_cast<std::int32_t>(ranges[i + 1] - ranges[i] - 1));
            const __m256i from = _mm256_sub_epi32(eight, first);
            meets = _mm256_or_si256(meets, _mm256_cmpeq_epi32(_mm256_min_epu32(from, most), from));
        }
        const int mask = _mm256_movemask_ps(_mm256_castsi256_ps(meets));
        bits |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(mask)) << p;
    }
    return bits;
}
#endif

// One condition of a filter: ranges (first, last) in the order of an attribute, apart from each other.
class Condition {
public:
    Condition(const SortedPositions& sorted, std::span<const std::int64_t> ends)
        : sorted_(&sorted), ranges_(ends.begin(), ends.end()) {
        for (std::size_t i = 0; i + 1 < ranges_.size(); i += 2)
            share_ += static_cast<double>(ranges_[i + 1] - ranges_[i]);
        share_ /= static_cast<double>(sorted.arms());
        for (const std::int64_t end : ranges_) {
            const auto* set = end > 0 ? sorted.kept(static_cast<std::size_t>(end)) : nullptr;
            if (set) sets_.push_back(set);
            if (end > 0 && !set) {
                sets_.clear();
                return;
            }
        }
    }

    // The bits of a word that meet it, of those that are wanted: from the sets of all ends, where they are kept, as
    // those of flags are; else by comparing, one by one where few are wanted.
    std::uint64_t word(std::size_t w, std::uint64_t wanted) const {
        if (ranges_.empty() || wanted == 0) return 0;
        if (const Known here = known(w); here != Known::some) return here == Known::all ? wanted : 0;
        if (!sets_.empty()) {
            std::uint64_t bits = 0;
            for (const std::uint64_t* set : sets_) bits ^= set[w];
            return bits & wanted;
        }
        constexpr int few = 8;
        if (std::popcount(wanted) <= few) {
            std::uint64_t bits = 0;
            for (; wanted != 0; wanted &= wanted - 1)
                if (bit(64 * w + static_cast<std::size_t>(std::countr_zero(wanted)))) bits |= wanted & -wanted;
            return bits;
        }
#ifdef TREETOP_X86
        if (__builtin_cpu_supports("avx2")) return in_ranges_by_avx2(sorted_->places(w), ranges_) & wanted;
#endif
        return in_ranges(sorted_->places(w), ranges_) & wanted;
    }

    bool bounded() const { return sorted_->has_extents(); }
    Known known(std::size_t w) const { return bounded() ? among(sorted_->word_extent(w)) : Known::some; }
    Known known_block(std::size_t block) const { return bounded() ? among(sorted_->block_extent(block)) : Known::some; }
    void ask_known(std::size_t w) const {
        if (bounded()) prefetch(&sorted_->word_extent(w));
    }

    // Which part of all arms meets it.
    double share() const { return share_; }

    // What asking it for an arm costs for each arm that it rules out: the least goes first. A comparison reads 32 times
    // as much memory as a bit, most of which is at hand.
    double effort() const { return (sets_.empty() ? 4.0 : 1.0) / std::max(1e-9, 1.0 - share_); }

    bool bit(std::size_t position) const {
        const std::size_t w = position / 64, at = position % 64;
        if (!sets_.empty()) return word(w, std::uint64_t{1} << at) != 0;
        const auto place = static_cast<std::int64_t>(sorted_->places(w)[at]);
        for (std::size_t i = 0; i + 1 < ranges_.size(); i += 2)
            if (ranges_[i] <= place && place < ranges_[i + 1]) return true;
        return false;
    }

    void ask_bit(std::size_t position) const {
        for (const std::uint64_t* set : sets_) prefetch(set + position / 64);
        if (sets_.empty()) prefetch(sorted_->places(position / 64).data() + position % 64);
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
    // Whether none or all of the places of an extent are in a range.
    Known among(const SortedPositions::Extent& places) const {
        std::size_t first = 0, count = ranges_.size() / 2;  // the first range that ends after the lowest place
        while (count > 0) {
            const std::size_t half = count / 2;
            if (ranges_[2 * (first + half) + 1] > places.low) {
                count = half;
            } else {
                first += half + 1;
                count -= half + 1;
            }
        }
        if (2 * first == ranges_.size() || ranges_[2 * first] > places.high) return Known::none;
        return ranges_[2 * first] <= places.low && places.high < ranges_[2 * first + 1] ? Known::all : Known::some;
    }

    const SortedPositions* sorted_;
    std::vector<std::int64_t> ranges_;
    double share_ = 0;
    std::vector<const std::uint64_t*> sets_;  // of the ends of all ranges, if every one is kept
};

// The arms that meet every condition, of those of `base` where it is given. What the conditions and the base point to
// outlives it.
class ConditionBits final : public BitSource {
public:
    ConditionBits(std::vector<Condition> conditions, const Mask* base)
        : conditions_(std::move(conditions)), base_(base) {
        std::ranges::stable_sort(conditions_, {}, &Condition::effort);
    }

    bool bounded() const override { return std::ranges::any_of(conditions_, &Condition::bounded); }
    Known known(std::size_t w) const override {
        return every([w](const Condition& condition) { return condition.known(w); });
    }
    Known known_block(std::size_t block) const override {
        return every([block](const Condition& condition) { return condition.known_block(block); });
    }
    void ask_known(std::size_t w) const override {
        for (const Condition& condition : conditions_) condition.ask_known(w);
    }

    std::uint64_t word(std::size_t w, std::uint64_t wanted) const override {
        if (base_) wanted = base_->word(w, wanted);
        for (const Condition& condition : conditions_) wanted = condition.word(w, wanted);
        return wanted;
    }

    double share() const override {
        double all = 1;
        for (const Condition& condition : conditions_) all *= condition.share();
        return all;
    }

    bool bit(std::size_t position) const override {
        const auto p = static_cast<std::int32_t>(position);
        return (!base_ || base_->any(p, p + 1)) &&
               std::ranges::all_of(conditions_, [&](const Condition& condition) { return condition.bit(position); });
    }

    void ask_bit(std::size_t position) const override {
        for (const Condition& condition : conditions_) condition.ask_bit(position);
    }

    // Not for what is read of the few bits that conditions leave.
    void ask(std::size_t w) const override {
        constexpr double few = 1.0 / 8;
        double left = 1;
        for (const Condition& condition : conditions_) {
            if (left < few) return;
            if (condition.known(w) == Known::some) condition.ask(w);
            left *= condition.share();
        }
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
    // What is known if every condition must hold.
    template <class KnownBy>
    Known every(KnownBy&& known_by) const {
        Known all = base_ ? Known::some : Known::all;
        for (const Condition& condition : conditions_) {
            const Known one = known_by(condition);
            if (one == Known::none) return Known::none;
            if (one == Known::some) all = Known::some;
        }
        return all;
    }

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

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
    // `cuts` rise strictly within [1, order.size()]; `values` are those of the order and do not fall, or there are
    // none.
    SortedPositions(std::size_t arms, std::span<const std::int32_t> order, std::span<const std::int64_t> cuts,
                    std::span<const double> values = {})
        : arms_(arms),
          words_(arms / 64 + 1),
          order_(order.begin(), order.end()),
          values_(values.begin(), values.end()),
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

    // How many of the order have a value below `value`, or up to it.
    std::size_t below(double value, bool up_to) const {
        const auto found = up_to ? std::upper_bound(values_.begin(), values_.end(), value)
                                 : std::lower_bound(values_.begin(), values_.end(), value);
        return static_cast<std::size_t>(found - values_.begin());
    }
    bool has_values() const { return values_.size() == order_.size(); }

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
    std::vector<double> values_;
    std::vector<std::int32_t> place_;  // of each position in the order
    std::vector<std::int64_t> cuts_;
    std::vector<std::uint64_t> sets_;  // the bits at every cut
};

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
            condition.ask(w);
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

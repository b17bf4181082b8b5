// Positions in the order of an attribute's values, and sets of them as bits. Does not know what a value is.
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
        find_extents();
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

    // Between which places in the order all positions of a word stand, and of a block of words; -1 among them if one
    // has no value. Known only where values follow the positions, so that it tells something.
    struct Extent {
        std::int32_t low, high;
    };
    bool has_extents() const { return !word_extents_.empty(); }
    const Extent& word_extent(std::size_t w) const { return word_extents_[w]; }
    const Extent& block_extent(std::size_t block) const { return block_extents_[block]; }

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
    void find_extents() {
        double width = 0;
        word_extents_.reserve(words_);
        for (std::size_t w = 0; w < words_; ++w) {
            const auto [low, high] = std::ranges::minmax(places(w));
            word_extents_.push_back({low, high});
            width += high - low;
        }
        if (width > 0.5 * static_cast<double>(order_.size()) * static_cast<double>(words_)) word_extents_.clear();
        for (std::size_t w = 0; w < word_extents_.size(); w += block_words) {
            Extent all = word_extents_[w];
            for (std::size_t i = w + 1; i < std::min(w + block_words, words_); ++i)
                all = {std::min(all.low, word_extents_[i].low), std::max(all.high, word_extents_[i].high)};
            block_extents_.push_back(all);
        }
    }

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
    std::vector<Extent> word_extents_, block_extents_;
    std::vector<std::int64_t> cuts_;
    std::vector<std::uint64_t> sets_;  // the bits at every cut
};

}  // namespace treetop

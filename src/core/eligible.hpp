// Which arms a request may see: all, only those at some positions, all but those, or a prepared mask. Knows positions
// and nodes, not what they stand for.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "machine.hpp"

namespace treetop {

// How many bits of these words are set.
#ifdef TREETOP_X86
__attribute__((target("popcnt"))) inline std::uint32_t count_by_popcnt(std::span<const std::uint64_t> words) {
    std::uint32_t sum = 0;
    for (const std::uint64_t word : words) sum += static_cast<std::uint32_t>(__builtin_popcountll(word));
    return sum;
}
#endif

inline std::uint32_t count_bits(std::span<const std::uint64_t> words) {
#ifdef TREETOP_X86
    if (words.size() > 4 && __builtin_cpu_supports("popcnt")) return count_by_popcnt(words);
#endif
    std::uint32_t sum = 0;
    for (const std::uint64_t word : words) sum += static_cast<std::uint32_t>(std::popcount(word));
    return sum;
}

// What is known of the bits of a word, or of a block of words, without a look at each.
enum class Known { none, some, all };
constexpr std::size_t block_words = 64;

// Bits that are computed when they are asked for.
class BitSource {
public:
    virtual ~BitSource() = default;
    virtual bool bounded() const = 0;  // whether anything is known of words; if not, all are `some`
    virtual Known known(std::size_t w) const = 0;
    virtual Known known_block(std::size_t block) const = 0;
    virtual std::uint64_t word(std::size_t w, std::uint64_t wanted) const = 0;  // those of a word that are wanted
    virtual bool bit(std::size_t position) const = 0;
    virtual double share() const = 0;                      // about how many of all bits are set
    virtual void ask_bit(std::size_t position) const = 0;  // for the memory of a bit that will be computed
    virtual void ask(std::size_t w) const = 0;             // and of a word
    virtual void ask_known(std::size_t w) const = 0;       // and of what is known of it
    virtual std::vector<std::uint64_t> words() const = 0;
};

// A search asks for few words of many: these are computed one by one, until so many were asked for that all of them
// cost less. Threads may share it: whoever comes first computes all, and a word is the same either way.
class LazyBits {
public:
    LazyBits(std::size_t size, std::unique_ptr<const BitSource> source)
        : size_(size), source_(std::move(source)), singly_(source_->share() > 0.25), bounded_(source_->bounded()) {}

    std::uint64_t word(std::size_t w, std::uint64_t wanted) {
        if (ready_.load(std::memory_order_acquire)) return bits_[w] & wanted;
        if (const Known here = known(w); here != Known::some) return here == Known::all ? wanted : 0;
        if (asked_.fetch_add(1, std::memory_order_relaxed) * share < size_) return source_->word(w, wanted);
        return all()[w] & wanted;
    }
    bool ready() const { return ready_.load(std::memory_order_acquire); }
    // Whether one of the first few bits of a range is likely to be set, so that a word is more than has to be known.
    bool singly() const { return singly_ && !ready(); }
    bool bounded() const { return bounded_ && !ready(); }
    Known known(std::size_t w) const { return bounded_ ? source_->known(w) : Known::some; }
    Known known_block(std::size_t block) const { return bounded_ ? source_->known_block(block) : Known::some; }
    const BitSource& source() const { return *source_; }
    std::span<const std::uint64_t> all() {
        std::call_once(once_, [&] {
            bits_ = source_->words();
            ready_.store(true, std::memory_order_release);
        });
        return bits_;
    }

private:
    static constexpr std::size_t share = 8;  // all words cost about as much as one of so many, asked for singly
    std::size_t size_;
    std::unique_ptr<const BitSource> source_;
    bool singly_, bounded_;
    std::vector<std::uint64_t> bits_;
    std::atomic<std::size_t> asked_ = 0;
    std::atomic<bool> ready_ = false;
    std::once_flag once_;
};

// One bit per position. Prepared for many decisions it has counts per word and per node. For a single decision nothing
// is counted but what is asked for: the search asks whether there is any arm below a node, and finds one soon.
class Mask {
public:
    Mask(std::size_t arms, std::span<const std::int32_t> begin, std::span<const std::int32_t> end,
         std::span<const std::int32_t> positions, bool listed)
        : arms_(arms), nodes_(begin.size()), bits_(arms / 64 + 1, 0), below_(begin.size()) {
        if (!listed)
            for (std::size_t p = 0; p < arms; ++p) bits_[p / 64] |= std::uint64_t{1} << (p % 64);
        for (const std::int32_t p : positions) bits_[p / 64] ^= std::uint64_t{1} << (p % 64);
        before_.reserve(bits_.size() + 1);
        before_.push_back(0);
        for (const std::uint64_t word : bits_)
            before_.push_back(before_.back() + static_cast<std::uint32_t>(std::popcount(word)));
        for (std::size_t node = 0; node < begin.size(); ++node) below_[node] = count(begin[node], end[node]);
    }
    // From bits, of which those from `arms` on are not set.
    Mask(std::size_t arms, std::size_t nodes, std::vector<std::uint64_t> bits)
        : arms_(arms), nodes_(nodes), bits_(std::move(bits)) {}
    // From bits that are computed when they are asked for.
    Mask(std::size_t arms, std::size_t nodes, std::unique_ptr<const BitSource> source)
        : arms_(arms), nodes_(nodes), lazy_(std::make_unique<LazyBits>(arms / 64 + 1, std::move(source))) {}

    std::size_t arms() const { return arms_; }
    std::size_t nodes() const { return nodes_; }
    std::int32_t total() const { return count(0, static_cast<std::int32_t>(arms_)); }
    bool counted() const { return !below_.empty(); }
    // For a node with the positions [begin, end) below it.
    std::int32_t below(std::int32_t node, std::int32_t begin, std::int32_t end) const {
        return below_.empty() ? count(begin, end) : below_[node];
    }
    std::uint64_t word(std::size_t w, std::uint64_t wanted = ~std::uint64_t{0}) const {
        return lazy_ ? lazy_->word(w, wanted) : bits_[w] & wanted;
    }
    // Whether there is an eligible position in [begin, end).
    bool any(std::int32_t begin, std::int32_t end) const {
        if (begin >= end) return false;
        const std::size_t first = static_cast<std::size_t>(begin) / 64, last = static_cast<std::size_t>(end - 1) / 64;
        if (lazy_ && lazy_->singly() && lazy_->known(first) == Known::some) {  // the first few by themselves
            constexpr std::int32_t few = 8;
            for (std::int32_t p = begin; p < std::min(end, begin + few); ++p)
                if (lazy_->source().bit(static_cast<std::size_t>(p))) return true;
            if (end - begin <= few) return false;
        }
        if (first == last) return word(first, from(begin) & up_to(end)) != 0;
        if (word(first, from(begin)) != 0) return true;
        for (std::size_t w = first + 1; w < last; ++w) {
            if (block_at(w, last) == Known::none)
                w += block_words - 1;
            else if (word(w) != 0)
                return true;
        }
        return word(last, up_to(end)) != 0;
    }
    // Asks for the memory that `any` looks at first, where bits are lazy.
    void ask_first(std::int32_t begin) const {
        const auto at = static_cast<std::size_t>(begin);
        if (lazy_->known(at / 64) != Known::some) return;
        lazy_->singly() ? lazy_->source().ask_bit(at) : lazy_->source().ask(at / 64);
    }
    bool lazy() const { return lazy_ && !lazy_->ready(); }
    // Whether something is known of lazy bits without a look at each, and asks for the memory of that.
    bool bounded() const { return lazy_ && lazy_->bounded(); }
    void ask_known(std::int32_t begin) const { lazy_->source().ask_known(static_cast<std::size_t>(begin) / 64); }
    // Asks for the memory of [begin, end), which will be looked at.
    void ask(std::int32_t begin, std::int32_t end) const {
        if (lazy())
            for (std::int32_t p = begin; p < end; p = (p / 64 + 1) * 64)
                lazy_->source().ask(static_cast<std::size_t>(p) / 64);
    }
    std::int32_t count(std::int32_t begin, std::int32_t end) const {
        if (begin >= end) return 0;
        if (!before_.empty()) return static_cast<std::int32_t>(rank(end) - rank(begin));
        const std::size_t first = static_cast<std::size_t>(begin) / 64, last = static_cast<std::size_t>(end - 1) / 64;
        if (first == last) return std::popcount(word(first, from(begin) & up_to(end)));
        constexpr std::size_t few = 8, many = 64;  // words that are not worth all others, next to each other or not
        const std::int32_t ends = std::popcount(word(first, from(begin))) + std::popcount(word(last, up_to(end)));
        const bool singly = lazy_ && (last - first <= few || (bounded() && unknown(first + 1, last, many) <= many));
        if (!singly)
            return ends + static_cast<std::int32_t>(count_bits(every_word().subspan(first + 1, last - first - 1)));
        std::int32_t between = 0;
        for (std::size_t w = first + 1; w < last; ++w) {
            const Known block = block_at(w, last);
            if (block == Known::some) {
                between += std::popcount(word(w));
            } else {
                between += block == Known::all ? 64 * static_cast<std::int32_t>(block_words) : 0;
                w += block_words - 1;
            }
        }
        return ends + between;
    }
    // The j-th eligible position at or after `begin`; there must be one.
    std::int32_t pick(std::int32_t begin, std::int32_t j) const {
        auto wanted = static_cast<std::uint32_t>(j);
        std::size_t w = static_cast<std::size_t>(begin) / 64;
        std::uint64_t bits = word(w, from(begin));
        if (!before_.empty() && wanted >= static_cast<std::uint32_t>(std::popcount(bits))) {
            wanted += rank(begin);
            w = static_cast<std::size_t>(std::upper_bound(before_.begin(), before_.end(), wanted) - before_.begin()) -
                1;
            wanted -= before_[w];
            bits = word(w);
        }
        for (std::uint32_t here; wanted >= (here = static_cast<std::uint32_t>(std::popcount(bits))); bits = word(++w))
            wanted -= here;
        for (; wanted > 0; --wanted) bits &= bits - 1;
        return static_cast<std::int32_t>(w * 64) + std::countr_zero(bits);
    }

private:
    // What is known of the block of lazy bits that begins with a word and ends before another.
    Known block_at(std::size_t w, std::size_t end) const {
        if (w % block_words != 0 || w + block_words > end || !bounded()) return Known::some;
        return lazy_->known_block(w / block_words);
    }
    // How many words of [first, end) have to be looked at; counted until they are more than `many`.
    std::size_t unknown(std::size_t first, std::size_t end, std::size_t many) const {
        std::size_t count = 0;
        for (std::size_t w = first; w < end && count <= many; ++w) {
            if (block_at(w, end) != Known::some)
                w += block_words - 1;
            else if (lazy_->known(w) == Known::some)
                ++count;
        }
        return count;
    }
    std::span<const std::uint64_t> every_word() const { return lazy_ ? lazy_->all() : bits_; }
    // The bits of a word at and after a position; those before one that is the end of a range.
    static std::uint64_t from(std::int32_t begin) { return ~std::uint64_t{0} << (begin % 64); }
    static std::uint64_t up_to(std::int32_t end) { return ~std::uint64_t{0} >> (63 - (end - 1) % 64); }

    // Eligible positions before `position`.
    std::uint32_t rank(std::int32_t position) const {
        const std::size_t last = static_cast<std::size_t>(position) / 64;
        const std::uint64_t low = (std::uint64_t{1} << (position % 64)) - 1;
        return before_[last] + static_cast<std::uint32_t>(std::popcount(bits_[last] & low));
    }

    std::size_t arms_, nodes_;
    std::vector<std::uint64_t> bits_;
    std::vector<std::uint32_t> before_;  // eligible positions before every word, and all of them; empty: not counted
    std::vector<std::int32_t> below_;    // eligible arms below every node; empty: not counted
    std::unique_ptr<LazyBits> lazy_;     // instead of bits_, which are then empty
};

// The lists are sorted, so that counting and picking below a node cost a binary search and nothing is prepared per
// node.
struct Eligible {
    enum class Kind : std::int32_t { all = 0, only = 1, except = 2, mask = 3 };
    Kind kind = Kind::all;
    std::span<const std::int32_t> positions;
    const Mask* mask = nullptr;

    std::size_t rank(std::int32_t position) const {
        return std::lower_bound(positions.begin(), positions.end(), position) - positions.begin();
    }
    std::int32_t count(std::int32_t begin, std::int32_t end) const {
        if (kind == Kind::all) return end - begin;
        if (kind == Kind::mask) return mask->count(begin, end);
        const auto listed = static_cast<std::int32_t>(rank(end) - rank(begin));
        return kind == Kind::only ? listed : end - begin - listed;
    }
    // Whether there is any below a node with these positions.
    bool any_below(std::int32_t node, std::int32_t begin, std::int32_t end) const {
        if (kind == Kind::mask) return mask->counted() ? mask->below(node, begin, end) > 0 : mask->any(begin, end);
        return count(begin, end) > 0;
    }
    bool lazy() const { return kind == Kind::mask && mask->lazy(); }
    void ask(std::int32_t begin, std::int32_t end) const {
        if (kind == Kind::mask) mask->ask(begin, end);
    }
    // How many.
    std::int32_t below(std::int32_t node, std::int32_t begin, std::int32_t end) const {
        return kind == Kind::mask ? mask->below(node, begin, end) : count(begin, end);
    }
    // The j-th eligible position of [begin, end).
    std::int32_t pick(std::int32_t begin, std::int32_t end, std::int32_t j) const {
        if (kind == Kind::all) return begin + j;
        if (kind == Kind::mask) return mask->pick(begin, j);
        const std::size_t first = rank(begin), last = rank(end);
        if (kind == Kind::only) return positions[first + j];
        // The j-th gap-free position: as many listed ones are skipped as lie at or before it.
        std::size_t low = first, high = last;
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            if (positions[middle] - begin - static_cast<std::int32_t>(middle - first) <= j)
                low = middle + 1;
            else
                high = middle;
        }
        return begin + j + static_cast<std::int32_t>(low - first);
    }
    // Calls visit(position) for the eligible positions of [begin, end), ascending.
    template <class Visit>
    void each(std::int32_t begin, std::int32_t end, Visit&& visit) const {
        if (kind == Kind::mask) return each_bit(begin, end, visit);
        if (kind == Kind::only) {
            for (std::size_t i = rank(begin); i < positions.size() && positions[i] < end; ++i) visit(positions[i]);
            return;
        }
        std::size_t next = kind == Kind::all ? positions.size() : rank(begin);
        for (std::int32_t p = begin; p < end; ++p) {
            if (next < positions.size() && positions[next] == p)
                ++next;
            else
                visit(p);
        }
    }

private:
    template <class Visit>
    void each_bit(std::int32_t begin, std::int32_t end, Visit&& visit) const {
        for (std::int32_t p = begin; p < end; p = (p / 64 + 1) * 64) {
            const std::int32_t first = p / 64 * 64, left = end - first;  // of the word, and positions from there
            const std::uint64_t wanted = left < 64 ? (std::uint64_t{1} << left) - 1 : ~std::uint64_t{0};
            std::uint64_t word = mask->word(static_cast<std::size_t>(p) / 64, wanted & ~std::uint64_t{0} << (p % 64));
            for (; word != 0; word &= word - 1) visit(first + std::countr_zero(word));
        }
    }
};

}  // namespace treetop

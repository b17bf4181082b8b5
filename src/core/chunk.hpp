// The weights of a block of nodes or of a leaf, as they lie in the arena: feature by feature, so that one look-up of a
// context's feature serves all slots of the chunk.
//
// A feature is looked up in one cache line, which holds its list's place and length as well; the features are scattered
// over the lines by a bijection, so that a few low bits tell those of one line apart and no line overflows. Small sets
// of features that occur almost everywhere need no look-up: the feature is its own row.
//
// Whatever a line says is held against the size of its chunk when it is read: a damaged file gives wrong scores at
// worst, never a read outside of the arena.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "rows.hpp"

namespace treetop {

// A feature's list has a weight for every slot (as many words as there are slots), or for some: the weights, then their
// slots in 8, 16 or 32 bits each, filled up to a whole word.
struct NarrowLine {
    static constexpr std::size_t keys = 20;
    std::uint32_t base;        // where the first list begins, in words; the others follow in order
    std::uint16_t key[keys];   // the low bits of the scattered feature
    std::uint8_t words[keys];  // the length of its list; 0: nothing here
};
struct WideLine {
    static constexpr std::size_t keys = 7;
    std::uint32_t base;
    std::uint32_t key[keys];  // the whole scattered feature
    std::uint32_t words[keys];
    std::uint32_t unused;
};
static_assert(sizeof(NarrowLine) == line_bytes && sizeof(WideLine) == line_bytes);

// Where a chunk is and how to read it: an entry of the arena's directory.
struct Entry {
    enum class Form : std::uint32_t { empty = 0, own = 1, narrow = 2, wide = 3 };
    std::uint64_t at = 0;     // bytes from the start of the arena: the lines, then the words
    std::uint64_t words = 0;  // own: a row of `slots` words per feature
    std::uint32_t lines = 0;
    std::uint32_t slots = 0;
    Form form = Form::empty;
    std::uint32_t bits = 0;  // of a slot's number

    std::uint64_t bytes() const { return lines * line_bytes + words * sizeof(std::uint32_t); }
};
static_assert(sizeof(Entry) == 32);

inline std::uint32_t bits_for(std::uint64_t slots) { return slots <= 0x100 ? 8 : slots <= 0x10000 ? 16 : 32; }

// Words of a list of n (weight, slot), and back.
inline std::uint64_t packed_words(std::uint64_t n, std::uint32_t bits) { return n + (n * bits + 31) / 32; }
inline std::uint32_t packed_count(std::uint32_t words, std::uint32_t bits) {
    return static_cast<std::uint32_t>(std::uint64_t{words} * 32 / (32 + bits));
}

// Feature numbers scattered over [0, 2^bits) by an odd factor, which is a bijection.
struct Scatter {
    int bits = 1;
    explicit Scatter(std::int64_t columns)
        : bits(std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(columns - 1))))) {}
    std::uint32_t operator()(std::int32_t feature) const {
        return (static_cast<std::uint32_t>(feature) * 0x9e3779b1u) & static_cast<std::uint32_t>((1ull << bits) - 1);
    }
    // A line holds the features of a stretch of [0, 2^bits).
    std::uint32_t line(std::uint32_t scattered, std::uint32_t lines) const {
        return static_cast<std::uint32_t>((std::uint64_t{scattered} * lines) >> bits);
    }
    // From here on the low 16 bits tell the features of a line apart.
    std::uint32_t fewest_narrow_lines() const { return bits <= 16 ? 1 : 1u << (bits - 16); }
};

// What a worker needs to turn member rows into a chunk. Sizes are asked for first, so that all chunks can lie side by
// side: add() every member, then measure() or write().
class ChunkBuilder {
public:
    explicit ChunkBuilder(std::int64_t columns) : count_(columns, 0), columns_(columns), scatter_(columns) {}

    // Members come in ascending order of slot.
    void add(const Row& row, std::uint32_t slot) {
        if (row.size() == 0) return;
        members_.push_back({row, slot});
        for (const std::int32_t f : row.index)
            if (count_[f]++ == 0) seen_.push_back(f);
    }

    // How the members are best laid out; `at` is left open.
    Entry measure(std::uint32_t slots) {
        Entry entry;
        entry.slots = slots;
        entry.bits = bits_for(slots);
        if (!seen_.empty()) choose(entry);
        clear();
        return entry;
    }

    // The members laid out as measured, into memory that holds zeros.
    void write(const Entry& entry, std::byte* at) {
        auto* words = reinterpret_cast<std::uint32_t*>(at + entry.lines * line_bytes);
        if (entry.form == Entry::Form::own)
            write_rows(entry, words);
        else if (entry.form == Entry::Form::narrow)
            write_lists(entry, reinterpret_cast<NarrowLine*>(at), words);
        else if (entry.form == Entry::Form::wide)
            write_lists(entry, reinterpret_cast<WideLine*>(at), words);
        clear();
    }

private:
    struct Member {
        Row row;
        std::uint32_t slot;
    };

    void clear() {
        for (const std::int32_t f : seen_) count_[f] = 0;
        members_.clear();
        seen_.clear();
    }

    // A list of some slots costs little more than a whole row if a third of the slots or more are in it, and a row is
    // added up in fewer steps.
    static std::uint64_t list_words(const Entry& entry, std::uint32_t n) {
        return 3 * std::uint64_t{n} >= entry.slots ? entry.slots : packed_words(n, entry.bits);
    }

    void choose(Entry& entry) {
        std::uint64_t longest = 0;
        for (const std::int32_t f : seen_) {
            entry.words += list_words(entry, count_[f]);
            longest = std::max(longest, list_words(entry, count_[f]));
        }
        const auto rows = static_cast<std::uint64_t>(columns_) * entry.slots;
        if (rows <= 2 * entry.words) {
            entry.form = Entry::Form::own;
            entry.words = rows;
            return;
        }
        if (entry.words > 0xffffffffu) throw std::length_error("too many weights below one node");
        sort_scattered();
        entry.form = Entry::Form::wide;
        entry.lines = fewest_lines(WideLine::keys, 1);
        if (longest > 0xff) return;
        if (const std::uint32_t narrow = fewest_lines(NarrowLine::keys, scatter_.fewest_narrow_lines());
            narrow <= entry.lines) {
            entry.form = Entry::Form::narrow;
            entry.lines = narrow;
        }
    }

    void sort_scattered() {
        order_.clear();
        for (const std::int32_t f : seen_)
            order_.push_back(std::uint64_t{scatter_(f)} << 32 | static_cast<std::uint32_t>(f));
        std::sort(order_.begin(), order_.end());
    }

    std::uint32_t line_of(std::uint64_t ordered, std::uint32_t lines) const {
        return scatter_.line(static_cast<std::uint32_t>(ordered >> 32), lines);
    }

    // As few lines as hold all features, tried from three quarters full upwards.
    std::uint32_t fewest_lines(std::size_t keys, std::uint32_t least) const {
        for (std::uint64_t lines = std::max<std::uint64_t>(least, order_.size() * 4 / (keys * 3) + 1);;
             lines += lines / 16 + 1) {
            std::size_t first = 0;
            const auto fits = [&] {
                for (std::size_t i = 0; i < order_.size(); ++i) {
                    if (line_of(order_[i], static_cast<std::uint32_t>(lines)) !=
                        line_of(order_[first], static_cast<std::uint32_t>(lines)))
                        first = i;
                    if (i - first >= keys) return false;
                }
                return true;
            };
            if (fits()) return static_cast<std::uint32_t>(lines);
        }
    }

    void write_rows(const Entry& entry, std::uint32_t* words) const {
        for (const auto& [row, slot] : members_)
            for (std::size_t j = 0; j < row.size(); ++j)
                words[static_cast<std::size_t>(row.index[j]) * entry.slots + slot] =
                    std::bit_cast<std::uint32_t>(row.value[j]);
    }

    template <class Line>
    void write_lists(const Entry& entry, Line* lines, std::uint32_t* words) {
        sort_scattered();
        place_.resize(order_.size());
        std::uint32_t next = 0;
        std::size_t in_line = 0;
        for (std::size_t i = 0; i < order_.size(); ++i) {
            const auto feature = static_cast<std::int32_t>(order_[i]);
            const std::uint32_t number = line_of(order_[i], entry.lines);
            in_line = i > 0 && line_of(order_[i - 1], entry.lines) == number ? in_line + 1 : 0;
            if (in_line == 0) lines[number].base = next;
            const auto length = static_cast<std::uint32_t>(list_words(entry, count_[feature]));
            using Key = std::remove_reference_t<decltype(lines->key[0])>;
            using Words = std::remove_reference_t<decltype(lines->words[0])>;
            lines[number].key[in_line] = static_cast<Key>(order_[i] >> 32);
            lines[number].words[in_line] = static_cast<Words>(length);
            place_[i] = {next, length == entry.slots ? 0 : count_[feature], 0};
            count_[feature] = static_cast<std::uint32_t>(i);
            next += length;
        }
        for (const auto& [row, slot] : members_)
            for (std::size_t j = 0; j < row.size(); ++j)
                put(entry, place_[count_[row.index[j]]], row.value[j], slot, words);
    }

    struct Place {
        std::uint32_t first, size, filled;  // size 0: a whole row
    };

    static void put(const Entry& entry, Place& place, float value, std::uint32_t slot, std::uint32_t* words) {
        const auto weight = std::bit_cast<std::uint32_t>(value);
        std::uint32_t* list = words + place.first;
        if (place.size == 0) {
            list[slot] = weight;
            return;
        }
        const std::uint32_t n = place.filled++;
        list[n] = weight;
        auto* slots = reinterpret_cast<std::byte*>(list + place.size);
        const auto slot8 = static_cast<std::uint8_t>(slot);
        const auto slot16 = static_cast<std::uint16_t>(slot);
        if (entry.bits == 8)
            std::memcpy(slots + n, &slot8, 1);
        else if (entry.bits == 16)
            std::memcpy(slots + 2 * std::size_t{n}, &slot16, 2);
        else
            std::memcpy(slots + 4 * std::size_t{n}, &slot, 4);
    }

    std::vector<std::uint32_t> count_;  // per feature; while lists are written, its place
    std::vector<std::int32_t> seen_;
    std::vector<Member> members_;
    std::vector<std::uint64_t> order_;
    std::vector<Place> place_;
    std::int64_t columns_;
    Scatter scatter_;
};

}  // namespace treetop

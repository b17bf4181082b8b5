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

// A feature's list has one of two forms, told apart by its length: a bit for every slot, then the weights of those that
// are set; or few weights, then their slots in 8, 16 or 32 bits each, filled up to a whole word with zeros.
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

inline std::uint32_t bits_for(std::uint64_t slots) { return slots <= 0x100 ? 8 : slots <= 0x10000 ? 16 : 32; }

// The lengths of the lists of a chunk. Up to 64 slots all lists have bits: one form is one branch less to foresee.
// Above, the shorter form is taken, so that the two never share a length.
struct Lengths {
    std::uint32_t bits;           // of a slot's number
    std::uint32_t bitmap;         // words of a bit per slot
    std::uint32_t fewest_mapped;  // weights from which on a list has bits
    std::uint32_t mapped;         // words of that many

    explicit Lengths(std::uint32_t slots)
        : bits(bits_for(slots)),
          bitmap(slots / 32 + (slots % 32 > 0)),
          fewest_mapped(bitmap <= 2 ? 1 : 32 / bits * (bitmap - 1) + 1),
          mapped(fewest_mapped + bitmap) {}

    std::uint64_t words(std::uint32_t n) const {
        return n + (n < fewest_mapped ? (std::uint64_t{n} * bits + 31) / 32 : bitmap);
    }
    // Damaged bits lead so many words past the end of a chunk, where the arena must still be.
    std::uint64_t slack() const { return std::uint64_t{bitmap} * 32 + line_bytes / 4; }
};

// Where a chunk is and how to read it: an entry of the arena's directory.
struct Entry {
    enum class Form : std::uint32_t { empty = 0, own = 1, narrow = 2, wide = 3 };
    std::uint64_t at = 0;     // bytes from the start of the arena: the lines, then the words
    std::uint64_t words = 0;  // own: a row of `slots` words per feature
    std::uint32_t lines = 0;
    std::uint32_t slots = 0;
    Form form = Form::empty;
    std::uint32_t unused = 0;

    std::uint64_t bytes() const { return lines * line_bytes + words * sizeof(std::uint32_t); }
    std::uint64_t reach() const { return bytes() + Lengths(slots).slack() * sizeof(std::uint32_t); }
};
static_assert(sizeof(Entry) == 32);

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

    void choose(Entry& entry) {
        const Lengths lengths(entry.slots);
        std::uint64_t longest = 0;
        for (const std::int32_t f : seen_) {
            entry.words += lengths.words(count_[f]);
            longest = std::max(longest, lengths.words(count_[f]));
        }
        const auto rows = static_cast<std::uint64_t>(columns_) * entry.slots;
        if (rows <= 4 * entry.words) {  // adding whole rows needs neither look-ups nor foresight
            entry.form = Entry::Form::own;
            entry.words = rows;
            return;
        }
        if (entry.words > 0xffffffffu) throw std::length_error("too many weights below one node");
        if (longest <= 0xff) {
            entry.form = Entry::Form::narrow;
            entry.lines = fewest_lines(NarrowLine::keys, scatter_.fewest_narrow_lines());
            if (entry.lines > scatter_.fewest_narrow_lines()) return;
        }
        // Either the lists are too long for narrow lines, or there are so few features that wide ones may be fewer.
        const std::uint32_t wide = fewest_lines(WideLine::keys, 1);
        if (entry.lines > 0 && wide >= entry.lines) return;
        entry.form = Entry::Form::wide;
        entry.lines = wide;
    }

    std::uint32_t line_of(std::int32_t feature, std::uint32_t lines) const {
        return scatter_.line(scatter_(feature), lines);
    }

    // As few lines as hold all features, tried from three quarters full upwards.
    std::uint32_t fewest_lines(std::size_t keys, std::uint32_t least) {
        auto lines = std::max(least, static_cast<std::uint32_t>(seen_.size() * 4 / (keys * 3) + 1));
        while (overflows(keys, lines)) lines += lines / 16 + 1;
        return lines;
    }

    bool overflows(std::size_t keys, std::uint32_t lines) {
        line_start_.assign(lines, 0);
        return std::any_of(seen_.begin(), seen_.end(),
                           [&](std::int32_t f) { return ++line_start_[line_of(f, lines)] > keys; });
    }

    // The features line by line; those of one line in the order in which they were seen.
    void sort_by_line(std::uint32_t lines) {
        line_start_.assign(lines + 1, 0);
        for (const std::int32_t f : seen_) ++line_start_[line_of(f, lines) + 1];
        for (std::uint32_t i = 0; i < lines; ++i) line_start_[i + 1] += line_start_[i];
        order_.resize(seen_.size());
        for (const std::int32_t f : seen_) order_[line_start_[line_of(f, lines)]++] = f;
    }

    void write_rows(const Entry& entry, std::uint32_t* words) const {
        for (const auto& [row, slot] : members_)
            for (std::size_t j = 0; j < row.size(); ++j)
                words[static_cast<std::size_t>(row.index[j]) * entry.slots + slot] =
                    std::bit_cast<std::uint32_t>(row.value[j]);
    }

    template <class Line>
    void write_lists(const Entry& entry, Line* lines, std::uint32_t* words) {
        sort_by_line(entry.lines);
        const Lengths lengths(entry.slots);
        place_.resize(order_.size());
        std::uint32_t next = 0, last = entry.lines;
        std::size_t in_line = 0;
        for (std::size_t i = 0; i < order_.size(); ++i) {
            const std::int32_t feature = order_[i];
            const std::uint32_t number = line_of(feature, entry.lines);
            in_line = number == last ? in_line + 1 : 0;
            last = number;
            if (in_line == 0) lines[number].base = next;
            const std::uint32_t n = count_[feature];
            const auto length = static_cast<std::uint32_t>(lengths.words(n));
            using Key = std::remove_reference_t<decltype(lines->key[0])>;
            using Words = std::remove_reference_t<decltype(lines->words[0])>;
            lines[number].key[in_line] = static_cast<Key>(scatter_(feature));
            lines[number].words[in_line] = static_cast<Words>(length);
            place_[i] = {next, n, 0};
            count_[feature] = static_cast<std::uint32_t>(i);
            next += length;
        }
        for (const auto& [row, slot] : members_)
            for (std::size_t j = 0; j < row.size(); ++j)
                put(lengths, place_[count_[row.index[j]]], row.value[j], slot, words);
    }

    struct Place {
        std::uint32_t first, size, filled;
    };

    static void put(const Lengths& lengths, Place& place, float value, std::uint32_t slot, std::uint32_t* words) {
        const auto weight = std::bit_cast<std::uint32_t>(value);
        std::uint32_t* list = words + place.first;
        const std::uint32_t n = place.filled++;
        if (place.size >= lengths.fewest_mapped) {
            list[slot / 32] |= 1u << (slot % 32);
            list[lengths.bitmap + n] = weight;
            return;
        }
        list[n] = weight;
        auto* slots = reinterpret_cast<std::byte*>(list + place.size);
        const auto slot8 = static_cast<std::uint8_t>(slot);
        const auto slot16 = static_cast<std::uint16_t>(slot);
        if (lengths.bits == 8)
            std::memcpy(slots + n, &slot8, 1);
        else if (lengths.bits == 16)
            std::memcpy(slots + 2 * std::size_t{n}, &slot16, 2);
        else
            std::memcpy(slots + 4 * std::size_t{n}, &slot, 4);
    }

    std::vector<std::uint32_t> count_;  // per feature; while lists are written, its place
    std::vector<std::int32_t> seen_;
    std::vector<Member> members_;
    std::vector<std::uint32_t> line_start_;
    std::vector<std::int32_t> order_;
    std::vector<Place> place_;
    std::int64_t columns_;
    Scatter scatter_;
};

}  // namespace treetop

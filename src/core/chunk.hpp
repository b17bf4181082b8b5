// The weights of a block of nodes or of a leaf, as they lie in the arena: feature by feature, so that one look-up of a
// context's feature serves all slots of the chunk.
//
// A feature is looked up in one cache line, seldom two, which holds its list's place and length as well; the features
// are scattered over the lines by a bijection, so that a few low bits tell those of one line apart. Small sets of
// features that occur almost everywhere need no look-up: the feature is its own row.
//
// Whatever a line says is held against the size of its chunk when it is read: a damaged file gives wrong scores at
// worst, never a read outside of the arena.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "rows.hpp"

namespace treetop {

// A line lists features and how many weights each has; a line that is full lets the last ones spill into the next. The
// lists of a line's features follow each other in its order.
struct NarrowLine {
    static constexpr std::size_t keys = 20;
    static constexpr std::uint32_t spills = 1u << 31;
    std::uint32_t base;  // where the first list begins, in bytes; top bit: features have spilled into the next line
    std::uint16_t key[keys];   // the low bits of the scattered feature
    std::uint8_t count[keys];  // the weights of its list; 0: nothing here
};
struct WideLine {
    static constexpr std::size_t keys = 7;
    std::uint32_t base;
    std::uint32_t key[keys];  // the whole scattered feature
    std::uint32_t count[keys];
    std::uint32_t above;  // the high bits of the base; top bit: as above
};
static_assert(sizeof(NarrowLine) == line_bytes && sizeof(WideLine) == line_bytes);

// The lists of a chunk, byte by byte: first the slots of the weights, then the weights. The slots are numbers of 1, 2
// or 4 bytes, or, from where that is no longer, a bit for every slot of the chunk. Up to 64 slots all lists have bits:
// one form is one branch less to foresee.
struct Lists {
    std::uint32_t width;   // bytes of a slot's number
    std::uint32_t bitmap;  // words of a bit per slot
    std::uint32_t mapped;  // weights from which on a list has bits
    std::uint32_t step;    // bytes of slots for every weight up to that

    explicit Lists(std::uint32_t slots)
        : width(slots <= 0x100     ? 1
                : slots <= 0x10000 ? 2
                                   : 4),
          bitmap(slots / 32 + (slots % 32 > 0)),
          mapped(bitmap <= 2 ? 1 : 4 / width * bitmap),
          step(bitmap <= 2 ? 4 * bitmap : width) {}

    std::uint64_t slot_bytes(std::uint32_t n) const { return std::uint64_t{step} * std::min(n, mapped); }
    std::uint64_t bytes(std::uint32_t n) const { return std::uint64_t{4} * n + slot_bytes(n); }
    // Damaged bits lead so many bytes past the end of a chunk, where the arena must still be.
    std::uint64_t slack() const { return std::uint64_t{bitmap} * 32 * sizeof(float) + line_bytes; }
};

// Where a chunk is and how to read it: an entry of the arena's directory.
struct Entry {
    enum class Form : std::uint32_t { empty = 0, own = 1, narrow = 2, wide = 3 };
    std::uint64_t at = 0;    // bytes from the start of the arena: the lines, then the lists
    std::uint64_t size = 0;  // bytes of the lists; own: a row of `slots` weights per feature
    std::uint32_t lines = 0;
    std::uint32_t slots = 0;
    Form form = Form::empty;
    std::uint32_t unused = 0;

    std::uint64_t bytes() const { return lines * line_bytes + size; }
    std::uint64_t reach() const { return bytes() + Lists(slots).slack(); }
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
    // From here on the low 16 bits tell the features of a line and of the one before it apart.
    std::uint32_t fewest_narrow_lines() const { return bits <= 15 ? 1 : 1u << (bits - 15); }
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
        std::byte* lists = at + entry.lines * line_bytes;
        if (entry.form == Entry::Form::own)
            write_rows(entry, reinterpret_cast<float*>(lists));
        else if (entry.form == Entry::Form::narrow)
            write_lists(entry, reinterpret_cast<NarrowLine*>(at), lists);
        else if (entry.form == Entry::Form::wide)
            write_lists(entry, reinterpret_cast<WideLine*>(at), lists);
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
        const Lists lists(entry.slots);
        std::uint32_t most = 0;
        for (const std::int32_t f : seen_) {
            entry.size += lists.bytes(count_[f]);
            most = std::max(most, count_[f]);
        }
        const auto rows = static_cast<std::uint64_t>(columns_) * entry.slots * sizeof(float);
        if (rows <= 4 * entry.size) {  // adding whole rows needs neither look-ups nor foresight
            entry.form = Entry::Form::own;
            entry.size = rows;
            return;
        }
        if (most <= 0xff && entry.size < NarrowLine::spills) {
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

    // As few lines as hold all features, tried from seven tenths full upwards: then one line in twenty spills.
    std::uint32_t fewest_lines(std::size_t keys, std::uint32_t least) {
        auto lines = std::max(least, static_cast<std::uint32_t>(seen_.size() * 10 / (keys * 7) + 1));
        while (overflows(keys, lines)) lines += lines / 16 + 1;
        return lines;
    }

    // Whether a line would spill more than the next one can hold, or the last one anything at all.
    bool overflows(std::size_t keys, std::uint32_t lines) {
        line_start_.assign(lines, 0);
        for (const std::int32_t f : seen_) ++line_start_[line_of(f, lines)];
        std::size_t spilled = 0;
        for (const std::uint32_t own : line_start_) {
            spilled = std::max(spilled + own, keys) - keys;
            if (spilled > keys) return true;
        }
        return spilled > 0;
    }

    // The features line by line; those of one line in the order in which they were seen.
    void sort_by_line(std::uint32_t lines) {
        line_start_.assign(lines + 1, 0);
        for (const std::int32_t f : seen_) ++line_start_[line_of(f, lines) + 1];
        for (std::uint32_t i = 0; i < lines; ++i) line_start_[i + 1] += line_start_[i];
        order_.resize(seen_.size());
        for (const std::int32_t f : seen_) order_[line_start_[line_of(f, lines)]++] = f;
    }

    void write_rows(const Entry& entry, float* weights) const {
        for (const auto& [row, slot] : members_)
            for (std::size_t j = 0; j < row.size(); ++j)
                weights[static_cast<std::size_t>(row.index[j]) * entry.slots + slot] = row.value[j];
    }

    static void set_base(NarrowLine& line, std::uint64_t base) { line.base = static_cast<std::uint32_t>(base); }
    static void set_base(WideLine& line, std::uint64_t base) {
        line.base = static_cast<std::uint32_t>(base);
        line.above = static_cast<std::uint32_t>(base >> 32);
    }
    static void set_spilled(NarrowLine& line) { line.base |= NarrowLine::spills; }
    static void set_spilled(WideLine& line) { line.above |= NarrowLine::spills; }

    // Features go to their own line if it has room left after those that the line before spilled, else to the next.
    template <class Line>
    void write_lists(const Entry& entry, Line* lines, std::byte* out) {
        sort_by_line(entry.lines);
        const Lists lists(entry.slots);
        place_.resize(order_.size());
        std::uint64_t next = 0;
        std::uint32_t number = 0;
        std::size_t in_line = 0;
        for (std::size_t i = 0; i < order_.size(); ++i) {
            const std::int32_t feature = order_[i];
            const std::uint32_t own = line_of(feature, entry.lines);
            if (own > number || in_line == Line::keys) {
                number = std::max(own, number + 1);
                in_line = 0;
            }
            if (in_line == 0) set_base(lines[number], next);
            if (number > own) set_spilled(lines[own]);
            const std::uint32_t n = count_[feature];
            using Key = std::remove_reference_t<decltype(lines->key[0])>;
            using Count = std::remove_reference_t<decltype(lines->count[0])>;
            lines[number].key[in_line] = static_cast<Key>(scatter_(feature));
            lines[number].count[in_line++] = static_cast<Count>(n);
            place_[i] = {next, n, 0};
            count_[feature] = static_cast<std::uint32_t>(i);
            next += lists.bytes(n);
        }
        for (const auto& [row, slot] : members_)
            for (std::size_t j = 0; j < row.size(); ++j)
                put(lists, place_[count_[row.index[j]]], row.value[j], slot, out);
    }

    struct Place {
        std::uint64_t first;
        std::uint32_t size, filled;
    };

    static void put(const Lists& lists, Place& place, float value, std::uint32_t slot, std::byte* out) {
        std::byte* list = out + place.first;
        const std::size_t n = place.filled++;
        std::memcpy(list + lists.slot_bytes(place.size) + sizeof(float) * n, &value, sizeof(float));
        const auto slot8 = static_cast<std::uint8_t>(slot);
        const auto slot16 = static_cast<std::uint16_t>(slot);
        if (place.size >= lists.mapped) {
            std::uint32_t word;
            std::memcpy(&word, list + slot / 32 * 4, 4);
            word |= 1u << (slot % 32);
            std::memcpy(list + slot / 32 * 4, &word, 4);
        } else if (lists.width == 1)
            std::memcpy(list + n, &slot8, 1);
        else if (lists.width == 2)
            std::memcpy(list + 2 * n, &slot16, 2);
        else
            std::memcpy(list + 4 * n, &slot, 4);
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

// The serving layout: all weights of a model in one arena, in the order in which a decision reads them. First a header,
// then a directory of chunks, then the chunks: those of the blocks from the root downwards, then those of the leaves.
// There are offsets and no pointers, so that the arena can be written to a file and mapped again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "chunk.hpp"
#include "crc.hpp"
#include "parallel.hpp"
#include "rows.hpp"
#include "simd.hpp"
#include "tree.hpp"

namespace treetop {

// A routing function rad / |x - ctr| (Section 4, motivating example) keeps its centre in the routing row and its radius
// in the last column; a linear one is the whole row on [x; 1].
struct Geometry {
    std::vector<double> radius, square;  // per node: rad and |ctr|^2
    std::vector<std::int64_t> start{0};  // the centres, for contexts so near that dot products cannot tell how near
    std::vector<std::int32_t> index;
    std::vector<float> value;

    // |x - ctr|^2 for [x; 1]. Where |x|^2 - 2 x . ctr + |ctr|^2 is small beside its terms, a dot product in float32
    // leaves nothing of it: then feature by feature.
    double distance(std::int32_t node, const Row& x, double x_square, float dot) const {
        constexpr double enough = 1e-3;
        const double rough = std::max(0.0, x_square - 2.0 * dot + square[node]);
        if (rough > enough * (x_square + square[node])) return rough;
        double sum = 0;
        auto c = static_cast<std::size_t>(start[node]);
        const auto end = static_cast<std::size_t>(start[node + 1]);
        for (std::size_t j = 0; j + 1 < x.size(); ++j) {
            for (; c < end && index[c] < x.index[j]; ++c) sum += static_cast<double>(value[c]) * value[c];
            const bool both = c < end && index[c] == x.index[j];
            const double apart = static_cast<double>(x.value[j]) - (both ? value[c++] : 0.0f);
            sum += apart * apart;
        }
        for (; c < end; ++c) sum += static_cast<double>(value[c]) * value[c];
        return sum;
    }
};

inline Row without_bias(const Row& row, std::int64_t columns) {
    const bool has = row.size() > 0 && row.index.back() == columns - 1;
    return {row.index.first(row.size() - has), row.value.first(row.size() - has)};
}

inline Geometry make_geometry(const Rows& routing) {
    Geometry geometry;
    for (std::size_t node = 0; node < routing.size(); ++node) {
        const Row row = routing[node], centre = without_bias(row, routing.columns);
        double square = 0;
        for (const float v : centre.value) square += static_cast<double>(v) * v;
        geometry.square.push_back(square);
        geometry.index.insert(geometry.index.end(), centre.index.begin(), centre.index.end());
        geometry.value.insert(geometry.value.end(), centre.value.begin(), centre.value.end());
        geometry.start.push_back(static_cast<std::int64_t>(geometry.index.size()));
        geometry.radius.push_back(centre.size() < row.size() ? row.value.back() : 0.0);
    }
    return geometry;
}

struct Header {
    static constexpr std::uint32_t current = 4, this_order = 0x01020304;
    std::array<char, 8> magic = {'t', 'r', 'e', 'e', 't', 'o', 'p', 'L'};
    std::uint32_t version = current, byte_order = this_order;
    std::uint64_t bytes = 0, columns = 0, nodes = 0, arms = 0, chunks = 0, weights = 0;
    std::uint32_t geometric = 0, directory = 0;  // its checksum
    std::uint32_t arm_routes = 0;                // whether arms have routing functions of their own
    std::uint8_t unused[48] = {};
    std::uint32_t checksum = 0;  // of all before it

    std::uint32_t own_checksum() const {
        return crc32({reinterpret_cast<const std::byte*>(this), offsetof(Header, checksum)});
    }
};
static_assert(sizeof(Header) == 2 * line_bytes);

// One chunk per block, then one per leaf. Slots of a block's chunk: node i routes in slot i and is rewarded in slot
// (nodes + i); where none of the nodes has a reward model, as with treetop's learner, there are no such slots. Of a
// leaf's: its arms in order of position; where arms have routing functions of their own, those follow in the same
// order.
struct Index {
    Walk walk;
    Arena arena;
    std::span<const Entry> entries;
    bool arm_routes = false;  // whether arms have routing functions of their own

    Chunk chunk(std::int32_t number) const { return {arena, entries[number]}; }
    const Header& header() const { return *reinterpret_cast<const Header*>(arena.at(0)); }
};

inline std::uint64_t whole_lines(std::uint64_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }

// The slots of a chunk follow from the tree, but for those of reward models of nodes, which a block may be without.
inline std::uint32_t slots_of(const Walk& walk, const Layout& tree, bool arm_routes, std::size_t chunk, bool rewarded) {
    if (chunk < walk.blocks.size()) return (rewarded ? 2 : 1) * static_cast<std::uint32_t>(walk.blocks[chunk].count);
    const std::int32_t leaf = walk.leaves[chunk - walk.blocks.size()];
    return (arm_routes ? 2 : 1) * static_cast<std::uint32_t>(tree.end[leaf] - tree.begin[leaf]);
}

// Whether any node of a block has a reward model.
inline bool rewarded(const Walk& walk, const Rows& rewards, std::size_t chunk) {
    if (chunk >= walk.blocks.size()) return false;
    const auto [first, count] = walk.blocks[chunk];
    return std::ranges::any_of(walk.nodes.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                               [&](const Node& node) { return rewards[node.id].size() > 0; });
}

// Rows of rewards, and of routing where arms have any: nodes first, then arms.
inline void add_members(ChunkBuilder& builder, const Walk& walk, const Layout& tree, const Rows& routing,
                        const Rows& rewards, bool geometric, std::size_t chunk) {
    if (chunk < walk.blocks.size()) {
        const auto [first, count] = walk.blocks[chunk];
        for (std::int32_t i = 0; i < count; ++i) {
            const Row route = routing[walk.nodes[first + i].id];
            builder.add(geometric ? without_bias(route, routing.columns) : route, static_cast<std::uint32_t>(i));
        }
        for (std::int32_t i = 0; i < count; ++i)
            builder.add(rewards[walk.nodes[first + i].id], static_cast<std::uint32_t>(count + i));
        return;
    }
    const std::int32_t leaf = walk.leaves[chunk - walk.blocks.size()];
    for (std::int32_t p = tree.begin[leaf]; p < tree.end[leaf]; ++p)
        builder.add(rewards[tree.nodes() + tree.arm_at[p]], static_cast<std::uint32_t>(p - tree.begin[leaf]));
    if (routing.size() == tree.nodes()) return;
    for (std::int32_t p = tree.begin[leaf]; p < tree.end[leaf]; ++p)
        builder.add(routing[tree.nodes() + tree.arm_at[p]],
                    static_cast<std::uint32_t>(tree.end[leaf] - 2 * tree.begin[leaf] + p));
}

// With `file`, a new one, the arena lies there instead of in memory.
inline Index make_index(const Layout& tree, const Rows& routing, const Rows& rewards, bool geometric, int threads,
                        const std::string& file = {}) {
    Index index{make_walk(tree), {}, {}, routing.size() > tree.nodes()};
    const Walk& walk = index.walk;
    std::vector<Entry> entries(walk.blocks.size() + walk.leaves.size());
    std::vector<ChunkBuilder> builders(worker_count(threads, entries.size()), ChunkBuilder(rewards.columns));
    parallel_for(entries.size(), threads, 1, [&](int worker, std::size_t i) {
        add_members(builders[worker], walk, tree, routing, rewards, geometric, i);
        entries[i] = builders[worker].measure(slots_of(walk, tree, index.arm_routes, i, rewarded(walk, rewards, i)));
    });
    Header header;
    header.bytes = whole_lines(sizeof(Header) + entries.size() * sizeof(Entry));
    std::uint64_t reach = 0;
    for (Entry& entry : entries) {
        entry.at = header.bytes;
        header.bytes = whole_lines(header.bytes + entry.bytes());
        reach = std::max(reach, entry.at + entry.reach());
    }
    header.bytes = whole_lines(std::max(reach, header.bytes));
    header.columns = static_cast<std::uint64_t>(routing.columns);
    header.nodes = tree.nodes();
    header.arms = tree.arms();
    header.chunks = entries.size();
    header.weights = routing.value.size() + rewards.value.size();
    header.geometric = geometric;
    header.arm_routes = index.arm_routes;
    header.directory = crc32(std::as_bytes(std::span(entries)));
    header.checksum = header.own_checksum();
    index.arena = Arena::make(file, header.bytes);
    std::byte* out = index.arena.writable();
    std::memcpy(out, &header, sizeof(Header));
    std::memcpy(out + sizeof(Header), entries.data(), entries.size() * sizeof(Entry));
    index.entries = {reinterpret_cast<const Entry*>(index.arena.at(sizeof(Header))), entries.size()};
    parallel_for(entries.size(), threads, 1, [&](int worker, std::size_t i) {
        add_members(builders[worker], walk, tree, routing, rewards, geometric, i);
        builders[worker].write(entries[i], out + entries[i].at);
    });
    return index;
}

// What a directory entry must be, so that nothing is read outside of the arena whatever the chunk holds.
inline bool fits(const Entry& entry, const Header& header) {
    if (entry.at % line_bytes != 0 || entry.at > header.bytes) return false;
    const std::uint64_t room = header.bytes - entry.at;
    if (entry.size > room || entry.reach() > room) return false;
    switch (entry.form) {
        case Entry::Form::empty:
            return true;
        case Entry::Form::own:
            return entry.lines == 0 && entry.size == header.columns * entry.slots * sizeof(float);
        case Entry::Form::narrow:
        case Entry::Form::wide:
            return entry.lines > 0;
    }
    return false;
}

// A layout that was written before, in memory that outlives the index. Header, directory and sizes are checked here;
// weights and look-up lines when they are read.
inline Index open_index(const Layout& tree, std::int64_t columns, bool geometric, bool arm_routes,
                        std::span<const std::byte> bytes) {
    const auto fail = [](const std::string& why) { throw std::invalid_argument("serving layout: " + why); };
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % line_bytes != 0)
        fail("its memory does not begin at a multiple of 64 bytes");
    if (bytes.size() < sizeof(Header)) fail(std::to_string(bytes.size()) + " bytes are less than a header");
    Header header;
    std::memcpy(&header, bytes.data(), sizeof(Header));
    if (header.magic != Header{}.magic || header.byte_order != Header::this_order)
        fail("not a serving layout of this machine's kind");
    if (header.version != Header::current)
        fail("version " + std::to_string(header.version) + "; this software reads " + std::to_string(Header::current));
    if (header.checksum != header.own_checksum()) fail("the header does not have its own checksum; it is corrupt");
    if (header.bytes != bytes.size())
        fail(std::to_string(bytes.size()) + " bytes; " + std::to_string(header.bytes) + " were written");
    Index index{make_walk(tree), Arena::borrow(bytes), {}, arm_routes};
    const std::size_t chunks = index.walk.blocks.size() + index.walk.leaves.size();
    if (header.nodes != tree.nodes() || header.arms != tree.arms() || header.chunks != chunks ||
        header.columns != static_cast<std::uint64_t>(columns) || header.geometric != geometric ||
        header.arm_routes != arm_routes)
        fail("made for another model: " + std::to_string(header.nodes) + " nodes, " + std::to_string(header.arms) +
             " arms, " + std::to_string(header.columns) + " columns");
    if (chunks > (bytes.size() - sizeof(Header)) / sizeof(Entry)) fail("too short for its directory");
    index.entries = {reinterpret_cast<const Entry*>(index.arena.at(sizeof(Header))), chunks};
    if (header.directory != crc32(std::as_bytes(index.entries))) fail("the directory is corrupt");
    const auto counted = [&](std::size_t i) {
        const std::uint32_t slots = index.entries[i].slots;
        return slots == slots_of(index.walk, tree, arm_routes, i, false) ||
               slots == slots_of(index.walk, tree, arm_routes, i, true);
    };
    for (std::size_t i = 0; i < chunks; ++i)
        if (!counted(i) || !fits(index.entries[i], header))
            fail("entry " + std::to_string(i) + " of the directory is out of bounds");
    ask_for_huge_pages(bytes.data(), bytes.size());
    return index;
}

}  // namespace treetop

// Weights in the order in which a decision reads them. The tree is cut into blocks of a few levels; a block's chunk
// holds the routing and reward weights of all its nodes, a leaf's chunk the reward weights of its arms; feature by
// feature, so that one look-up of a context's feature serves them all.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "parallel.hpp"
#include "rows.hpp"
#include "tree.hpp"

namespace treetop {

// Hidden latency is most of the speed: what will be read soon is asked for now, into the second-level cache, which
// takes more requests at a time than the first.
inline void prefetch(const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 2);
#else
    (void)address;
#endif
}

// All cache lines of `n` four-byte values.
template <class T>
void prefetch(const T* first, std::size_t n) {
    for (std::size_t i = 0; i < n; i += 16) prefetch(static_cast<const void*>(first + i));
}

// A feature has a place in its chunk; absent features share place 0, which holds only zeros or nothing, so that the
// loops need not ask. Where a third of the slots or more share a feature its weights lie as one row of `width` floats,
// otherwise as a packed list: 16-bit slots, two to a word (or 32-bit ones in a chunk of very many slots), then as many
// weights.
//
// Reading goes in stages, each over all features and all chunks in work, so that the memory of the next stage is on its
// way while this one runs: ask(), locate(), accumulate().
struct Chunk {
    // How a feature finds its place: it is its own place (most features occur), by a table over all features (many
    // occur), or by buckets of about one feature each (few occur).
    enum class Lookup { own, table, buckets };
    struct Key {
        std::int32_t feature;
        std::uint32_t first;  // of its packed list, into words
    };

    std::vector<std::uint32_t> place;  // table: feature -> place; buckets: feature >> shift -> first place to look at
    std::vector<Key> keys;             // per place, and one more; not for dense rows by own place or table
    std::vector<float> row;            // dense: place * width + slot
    std::vector<std::uint32_t> words;  // sparse: the packed lists
    std::uint32_t width = 0;           // slots of a dense row; 0: sparse
    int shift = 0;
    bool wide = false;  // 32-bit slots
    Lookup lookup = Lookup::buckets;

    bool empty() const { return row.empty() && words.empty(); }

    void ask(const Row& x) const {
        if (lookup == Lookup::own)
            for (const std::int32_t f : x.index) prefetch(row.data() + std::size_t(f) * width, width);
        else
            for (const std::int32_t f : x.index) prefetch(place.data() + (static_cast<std::uint32_t>(f) >> shift));
    }

    // The place of every feature of x.
    void locate(const Row& x, std::uint32_t* at) const {
        if (lookup == Lookup::own) {
            for (std::size_t j = 0; j < x.size(); ++j) at[j] = static_cast<std::uint32_t>(x.index[j]);
            return;
        }
        if (lookup == Lookup::buckets)
            for (const std::int32_t f : x.index) prefetch(keys.data() + place[static_cast<std::uint32_t>(f) >> shift]);
        for (std::size_t j = 0; j < x.size(); ++j) {
            at[j] = lookup == Lookup::table ? place[x.index[j]] : find(x.index[j]);
            if (width > 0)
                prefetch(row.data() + std::size_t{at[j]} * width, width);
            else
                prefetch(words.data() + keys[at[j]].first, keys[at[j] + 1].first - keys[at[j]].first);
        }
    }

    // score[slot] += x . w(slot) for every slot; sums run over features in ascending order.
    void accumulate(const Row& x, const std::uint32_t* at, float* score) const {
        for (std::size_t j = 0; j < x.size(); ++j) {
            const float value = x.value[j];
            if (width > 0) {
                const float* weights = row.data() + std::size_t{at[j]} * width;
                for (std::uint32_t s = 0; s < width; ++s) score[s] += value * weights[s];
            } else if (wide) {
                const std::uint32_t first = keys[at[j]].first, count = (keys[at[j] + 1].first - first) / 2;
                const std::uint32_t* list = words.data() + first;
                for (std::uint32_t i = 0; i < count; ++i)
                    score[list[i]] += value * std::bit_cast<float>(list[count + i]);
            } else {
                const std::uint32_t first = keys[at[j]].first, count = 2 * (keys[at[j] + 1].first - first) / 3;
                const std::uint32_t* list = words.data() + first;
                const std::uint32_t* weights = list + (count + 1) / 2;
                for (std::uint32_t i = 0; i < count; ++i)
                    score[(list[i / 2] >> (16 * (i % 2))) & 0xffff] += value * std::bit_cast<float>(weights[i]);
            }
        }
    }

private:
    std::uint32_t find(std::int32_t f) const {
        const std::uint32_t bucket = static_cast<std::uint32_t>(f) >> shift;
        for (std::uint32_t i = place[bucket]; i < place[bucket + 1]; ++i)
            if (keys[i].feature == f) return i;
        return 0;
    }
};

// What a worker needs to turn member rows into a chunk: a count per feature, and which features were counted.
class ChunkBuilder {
public:
    explicit ChunkBuilder(std::int64_t columns) : count_(columns, 0), columns_(columns) {}

    // Members come in ascending order of slot.
    void add(const Row& row, std::uint32_t slot) {
        if (row.size() == 0) return;
        members_.push_back({row, slot});
        for (const std::int32_t f : row.index)
            if (count_[f]++ == 0) seen_.push_back(f);
    }

    Chunk build() {
        Chunk chunk;
        std::sort(seen_.begin(), seen_.end());
        std::size_t total = 0;
        for (const std::int32_t f : seen_) total += count_[f];
        if (total > 0) {
            const std::uint32_t slots = members_.back().slot + 1;
            // A row costs 4 bytes a slot, a packed entry 6: rows as long as they cost at most twice as much.
            if (seen_.size() * slots <= 3 * total) chunk.width = slots;
            chunk.wide = slots > 0x10000;
            fill_places(chunk);
            chunk.width ? fill_rows(chunk) : fill_words(chunk, total);
        }
        for (const std::int32_t f : seen_) count_[f] = 0;
        members_.clear();
        seen_.clear();
        return chunk;
    }

private:
    struct Member {
        Row row;
        std::uint32_t slot;
    };

    void fill_places(Chunk& chunk) const {
        const auto features = static_cast<std::int64_t>(seen_.size());
        if (chunk.width > 0 && columns_ <= 2 * features) {
            chunk.lookup = Chunk::Lookup::own;
        } else if (columns_ <= 16 * features) {
            chunk.lookup = Chunk::Lookup::table;
            chunk.place.assign(columns_, 0);
            for (std::size_t i = 0; i < seen_.size(); ++i) chunk.place[seen_[i]] = static_cast<std::uint32_t>(i + 1);
        } else {
            while (((columns_ - 1) >> chunk.shift) + 1 > 2 * features) ++chunk.shift;
            const std::size_t buckets = ((columns_ - 1) >> chunk.shift) + 1;
            chunk.place.assign(buckets + 1, 0);
            for (const std::int32_t f : seen_) ++chunk.place[(f >> chunk.shift) + 1];
            chunk.place[0] = 1;
            for (std::size_t b = 0; b < buckets; ++b) chunk.place[b + 1] += chunk.place[b];
            chunk.keys.assign(1, {-1, 0});
            for (const std::int32_t f : seen_) chunk.keys.push_back({f, 0});
            chunk.keys.push_back({-1, 0});
        }
    }

    void fill_rows(Chunk& chunk) {
        const bool own = chunk.lookup == Chunk::Lookup::own;
        chunk.row.assign((own ? columns_ : seen_.size() + 1) * chunk.width, 0.0f);
        for (std::size_t i = 0; i < seen_.size(); ++i)
            count_[seen_[i]] = own ? static_cast<std::uint32_t>(seen_[i]) : static_cast<std::uint32_t>(i + 1);
        for (const auto& [row, slot] : members_)
            for (std::size_t j = 0; j < row.size(); ++j)
                chunk.row[std::size_t{count_[row.index[j]]} * chunk.width + slot] = row.value[j];
    }

    void fill_words(Chunk& chunk, std::size_t total) {
        const auto length = [&](std::uint32_t n) { return chunk.wide ? 2 * n : n + (n + 1) / 2; };
        if (total > 0xffffffffULL / 2) throw std::length_error("too many weights below one node");
        chunk.keys.resize(seen_.size() + 2, {-1, 0});
        std::uint32_t next = 0;
        std::vector<std::uint32_t> size(seen_.size());
        for (std::size_t i = 0; i < seen_.size(); ++i) {
            chunk.keys[i + 1].first = next;
            size[i] = count_[seen_[i]];
            next += length(size[i]);
            count_[seen_[i]] = static_cast<std::uint32_t>(i);
        }
        chunk.keys.back().first = next;
        chunk.words.assign(next, 0);
        std::vector<std::uint32_t> filled(seen_.size(), 0);
        for (const auto& [row, slot] : members_) {
            for (std::size_t j = 0; j < row.size(); ++j) {
                const std::uint32_t i = count_[row.index[j]], n = filled[i]++;
                std::uint32_t* list = chunk.words.data() + chunk.keys[i + 1].first;
                if (chunk.wide)
                    list[n] = slot;
                else
                    list[n / 2] |= slot << (16 * (n % 2));
                list[(chunk.wide ? size[i] : (size[i] + 1) / 2) + n] = std::bit_cast<std::uint32_t>(row.value[j]);
            }
        }
    }

    std::vector<std::uint32_t> count_;
    std::vector<std::int32_t> seen_;
    std::vector<Member> members_;
    std::int64_t columns_;
};

// A routing function rad / |x - ctr| (Section 4, motivating example) keeps its centre in the routing row and its radius
// in the last column; a linear one is the whole row on [x; 1].
struct Geometry {
    std::vector<double> radius, square;  // per node: rad and |ctr|^2
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
        geometry.radius.push_back(centre.size() < row.size() ? row.value.back() : 0.0);
    }
    return geometry;
}

// The tree cut into blocks: the root's block holds the first levels, up to 254 nodes; below it every block holds up to
// 30 nodes, four levels of a binary tree (at least one level always). Within a block siblings have consecutive numbers.
struct Blocks {
    static constexpr std::size_t top = 254, other = 30;

    std::vector<std::int32_t> root;         // per block: the node whose descendants it holds
    std::vector<std::int32_t> start, node;  // block -> its nodes, level by level
    std::vector<std::int32_t> of_children;  // per inner node: the block that holds its children; leaves: -1
    std::vector<std::int32_t> slot;         // per inner node: the number of its first child in that block

    std::size_t size(std::int32_t block) const { return start[block + 1] - start[block]; }
};

inline Blocks make_blocks(const Layout& tree) {
    Blocks blocks;
    blocks.start.push_back(0);
    blocks.of_children.assign(tree.nodes(), -1);
    blocks.slot.assign(tree.nodes(), 0);
    std::vector<std::int32_t> roots{0};  // grows while it is read
    for (std::size_t r = 0; r < roots.size(); ++r) {
        if (tree.leaf(roots[r])) continue;
        const auto block = static_cast<std::int32_t>(blocks.root.size());
        const std::size_t first = blocks.node.size(), limit = r == 0 ? Blocks::top : Blocks::other;
        std::vector<std::int32_t> level{roots[r]};
        while (!level.empty()) {
            std::vector<std::int32_t> next;
            for (const std::int32_t parent : level)
                next.insert(next.end(), tree.children(parent).begin(), tree.children(parent).end());
            if (blocks.node.size() > first && blocks.node.size() - first + next.size() > limit) break;
            std::size_t at = blocks.node.size() - first;
            for (const std::int32_t parent : level) {
                if (tree.leaf(parent)) continue;
                blocks.of_children[parent] = block;
                blocks.slot[parent] = static_cast<std::int32_t>(at);
                at += tree.children(parent).size();
            }
            blocks.node.insert(blocks.node.end(), next.begin(), next.end());
            level = std::move(next);
        }
        blocks.root.push_back(roots[r]);
        blocks.start.push_back(static_cast<std::int32_t>(blocks.node.size()));
        roots.insert(roots.end(), level.begin(), level.end());
    }
    return blocks;
}

// One chunk per block, then one per node that is a leaf. Slots of a block's chunk: node i routes in slot i and is
// rewarded in slot (nodes + i). Of a leaf's: its arms in order of position. Reward rows: nodes first, then arms.
struct Index {
    Blocks blocks;
    std::vector<Chunk> inner;  // per block
    std::vector<Chunk> leaf;   // per node; empty for inner nodes
};

inline Index make_index(const Layout& tree, const Rows& routing, const Rows& rewards, bool geometric, int threads) {
    Index index{make_blocks(tree), {}, std::vector<Chunk>(tree.nodes())};
    const Blocks& blocks = index.blocks;
    index.inner.resize(blocks.root.size());
    const std::size_t items = index.inner.size() + tree.nodes();
    std::vector<ChunkBuilder> builders(worker_count(threads, items), ChunkBuilder(rewards.columns));
    parallel_for(items, threads, 1, [&](int worker, std::size_t item) {
        ChunkBuilder& builder = builders[worker];
        if (item < index.inner.size()) {
            const auto nodes =
                std::span(blocks.node).subspan(blocks.start[item], blocks.size(static_cast<std::int32_t>(item)));
            const auto n = static_cast<std::uint32_t>(nodes.size());
            for (std::uint32_t i = 0; i < n; ++i) {
                const Row route = routing[nodes[i]];
                builder.add(geometric ? without_bias(route, routing.columns) : route, i);
            }
            for (std::uint32_t i = 0; i < n; ++i) builder.add(rewards[nodes[i]], n + i);
            index.inner[item] = builder.build();
            return;
        }
        const std::size_t node = item - index.inner.size();
        if (!tree.leaf(static_cast<std::int32_t>(node))) return;
        for (std::int32_t p = tree.begin[node]; p < tree.end[node]; ++p)
            builder.add(rewards[tree.nodes() + tree.arm_at[p]], static_cast<std::uint32_t>(p - tree.begin[node]));
        index.leaf[node] = builder.build();
    });
    return index;
}

}  // namespace treetop

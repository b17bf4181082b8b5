// Weights in the order in which a decision reads them. One chunk per node: an inner node's chunk holds the routing and
// reward weights of its children, a leaf's chunk the reward weights of its arms; feature by feature, siblings together,
// so that one look-up of a context's feature serves all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel.hpp"
#include "rows.hpp"
#include "tree.hpp"

namespace treetop {

// A feature has a place in its chunk; absent features share a place that holds only zeros or nothing, so that the loops
// need not ask. Where most siblings share a feature its weights lie as one row of `width` floats, otherwise as a list
// of entries.
struct Chunk {
    struct Entry {
        std::uint32_t slot;
        float weight;
    };
    // How a feature finds its place: it is its own place (most features occur), by a table over all features (many
    // occur), or by buckets of about one feature each (few occur).
    enum class Lookup { own, table, buckets };

    std::vector<std::uint32_t> place;   // table: feature -> place; buckets: feature >> shift -> first place to look at
    std::vector<std::int32_t> feature;  // buckets: per place
    std::vector<float> row;             // dense: place * width + slot
    std::vector<std::uint32_t> first;   // sparse: per place, into entries
    std::vector<Entry> entries;         // ascending by slot within a place
    std::uint32_t width = 0;            // slots of a dense row; 0: sparse
    int shift = 0;
    Lookup lookup = Lookup::buckets;

    // score[slot] += x . w(slot) for every slot; sums run over features in ascending order.
    void accumulate(const Row& x, float* score) const {
        if (row.empty() && entries.empty()) return;
        switch (lookup) {
            case Lookup::own:
                return accumulate(x, score, [](std::int32_t f) { return static_cast<std::uint32_t>(f); });
            case Lookup::table:
                return accumulate(x, score, [this](std::int32_t f) { return place[f]; });
            case Lookup::buckets:
                return accumulate(x, score, [this](std::int32_t f) {
                    const std::uint32_t bucket = static_cast<std::uint32_t>(f) >> shift;
                    for (std::uint32_t i = place[bucket]; i < place[bucket + 1]; ++i)
                        if (feature[i] == f) return i;
                    return std::uint32_t{0};
                });
        }
    }

private:
    template <class Find>
    void accumulate(const Row& x, float* score, const Find& find) const {
        if (width == 4) return accumulate_row<4>(x, score, find);
        if (width == 8) return accumulate_row<8>(x, score, find);
        for (std::size_t j = 0; j < x.size(); ++j) {
            const std::size_t at = find(x.index[j]);
            const float value = x.value[j];
            if (width > 0) {
                for (std::uint32_t s = 0; s < width; ++s) score[s] += value * row[at * width + s];
            } else {
                for (std::uint32_t e = first[at]; e < first[at + 1]; ++e)
                    score[entries[e].slot] += value * entries[e].weight;
            }
        }
    }

    // A width known to the compiler keeps the sums in registers.
    template <std::uint32_t Width, class Find>
    void accumulate_row(const Row& x, float* score, const Find& find) const {
        float sum[Width];
        for (std::uint32_t s = 0; s < Width; ++s) sum[s] = score[s];
        for (std::size_t j = 0; j < x.size(); ++j) {
            const float* weights = row.data() + std::size_t{find(x.index[j])} * Width;
            const float value = x.value[j];
            for (std::uint32_t s = 0; s < Width; ++s) sum[s] += value * weights[s];
        }
        for (std::uint32_t s = 0; s < Width; ++s) score[s] = sum[s];
    }
};

// What a worker needs to turn member rows into a chunk: a count per feature, and which features were counted.
class ChunkBuilder {
public:
    explicit ChunkBuilder(std::int64_t columns) : count_(columns, 0), columns_(columns) {}

    void add(const Row& row, std::uint32_t slot) {
        members_.push_back({row, slot});
        for (const std::int32_t f : row.index)
            if (count_[f]++ == 0) seen_.push_back(f);
    }

    // `slots` is how many the chunk has, whether or not they have weights.
    Chunk build(std::uint32_t slots) {
        Chunk chunk;
        std::sort(seen_.begin(), seen_.end());
        std::size_t total = 0;
        for (const std::int32_t f : seen_) total += count_[f];
        if (total > 0) {
            // A row costs 4 bytes a slot, an entry 8: rows as long as they cost at most twice as much.
            if (seen_.size() * slots <= 4 * total) chunk.width = slots;
            fill_places(chunk);
            chunk.width ? fill_rows(chunk) : fill_entries(chunk, total);
        }
        for (const std::int32_t f : seen_) count_[f] = 0;
        members_.clear();
        seen_.clear();
        return chunk;
    }

private:
    void fill_places(Chunk& chunk) const {
        const auto features = static_cast<std::int64_t>(seen_.size());
        if (chunk.width > 0 && columns_ <= 2 * features) {
            chunk.lookup = Chunk::Lookup::own;
        } else if (columns_ <= 16 * features) {
            chunk.lookup = Chunk::Lookup::table;
            chunk.place.assign(columns_, 0);
            for (std::size_t i = 0; i < seen_.size(); ++i) chunk.place[seen_[i]] = static_cast<std::uint32_t>(i + 1);
        } else {
            chunk.feature.assign(1, -1);
            chunk.feature.insert(chunk.feature.end(), seen_.begin(), seen_.end());
            while (((columns_ - 1) >> chunk.shift) + 1 > 2 * features) ++chunk.shift;
            const std::size_t buckets = ((columns_ - 1) >> chunk.shift) + 1;
            chunk.place.assign(buckets + 1, 0);
            for (const std::int32_t f : seen_) ++chunk.place[(f >> chunk.shift) + 1];
            chunk.place[0] = 1;
            for (std::size_t b = 0; b < buckets; ++b) chunk.place[b + 1] += chunk.place[b];
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

    void fill_entries(Chunk& chunk, std::size_t total) {
        chunk.first.assign(1, 0);
        chunk.first.reserve(seen_.size() + 2);
        std::uint32_t next = 0;
        for (const std::int32_t f : seen_) {
            chunk.first.push_back(next);
            next += count_[f];
            count_[f] = chunk.first.back();  // from here on: where the feature's next entry goes
        }
        chunk.first.push_back(next);
        chunk.entries.resize(total);
        for (const auto& [row, slot] : members_)
            for (std::size_t j = 0; j < row.size(); ++j) chunk.entries[count_[row.index[j]]++] = {slot, row.value[j]};
    }

    struct Member {
        Row row;
        std::uint32_t slot;
    };
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

// Slots of an inner node's chunk: child c routes in slot c and is rewarded in slot (children + c). Of a leaf's: its
// arms in order of position. Reward rows: nodes first, then arms.
inline std::vector<Chunk> make_chunks(const Layout& tree, const Rows& routing, const Rows& rewards, bool geometric,
                                      int threads) {
    std::vector<Chunk> chunks(tree.nodes());
    std::vector<ChunkBuilder> builders(worker_count(threads, tree.nodes()), ChunkBuilder(rewards.columns));
    parallel_for(tree.nodes(), threads, 1, [&](int worker, std::size_t node) {
        ChunkBuilder& builder = builders[worker];
        const auto children = tree.children(static_cast<std::int32_t>(node));
        const auto n = static_cast<std::uint32_t>(children.size());
        for (std::uint32_t c = 0; c < n; ++c) {
            const Row route = routing[children[c]];
            builder.add(geometric ? without_bias(route, routing.columns) : route, c);
        }
        for (std::uint32_t c = 0; c < n; ++c) builder.add(rewards[children[c]], n + c);
        if (n == 0)
            for (std::int32_t p = tree.begin[node]; p < tree.end[node]; ++p)
                builder.add(rewards[tree.nodes() + tree.arm_at[p]], static_cast<std::uint32_t>(p - tree.begin[node]));
        chunks[node] = builder.build(n > 0 ? 2 * n : static_cast<std::uint32_t>(tree.end[node] - tree.begin[node]));
    });
    return chunks;
}

}  // namespace treetop

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

struct Chunk {
    struct Entry {
        std::uint32_t slot;
        float weight;
    };
    std::vector<std::int32_t> feature;    // ascending
    std::vector<std::uint32_t> first;     // per feature, into entries; one more than there are features
    std::vector<Entry> entries;           // ascending by slot within a feature
    std::vector<std::uint32_t> directory; // feature >> shift -> where to look in `feature`
    int shift = 0;

    // score[slot] += x . w(slot) for every slot; sums run over features in ascending order.
    void accumulate(const Row& x, float* score) const {
        if (feature.empty()) return;
        for (std::size_t j = 0; j < x.size(); ++j) {
            const std::int32_t wanted = x.index[j];
            const std::size_t bucket = static_cast<std::uint32_t>(wanted) >> shift;
            for (std::uint32_t i = directory[bucket]; i < directory[bucket + 1]; ++i) {
                if (feature[i] != wanted) continue;
                const float value = x.value[j];
                for (std::uint32_t e = first[i]; e < first[i + 1]; ++e)
                    score[entries[e].slot] += value * entries[e].weight;
                break;
            }
        }
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

    Chunk build() {
        Chunk chunk;
        std::sort(seen_.begin(), seen_.end());
        chunk.feature = seen_;
        chunk.first.reserve(seen_.size() + 1);
        std::uint32_t total = 0;
        for (const std::int32_t f : seen_) {
            chunk.first.push_back(total);
            total += count_[f];
            count_[f] = chunk.first.back();  // from here on: where the feature's next entry goes
        }
        chunk.first.push_back(total);
        chunk.entries.resize(total);
        for (const auto& [row, slot] : members_)
            for (std::size_t j = 0; j < row.size(); ++j)
                chunk.entries[count_[row.index[j]]++] = {slot, row.value[j]};
        for (const std::int32_t f : seen_) count_[f] = 0;
        fill_directory(chunk);
        members_.clear();
        seen_.clear();
        return chunk;
    }

private:
    // As many buckets as there are features, or up to twice that: a look-up reads about one feature.
    void fill_directory(Chunk& chunk) const {
        const auto features = static_cast<std::int64_t>(chunk.feature.size());
        while (((columns_ - 1) >> chunk.shift) + 1 > 2 * std::max<std::int64_t>(features, 1)) ++chunk.shift;
        const std::size_t buckets = ((columns_ - 1) >> chunk.shift) + 1;
        chunk.directory.assign(buckets + 1, 0);
        for (const std::int32_t f : chunk.feature) ++chunk.directory[(f >> chunk.shift) + 1];
        for (std::size_t b = 0; b < buckets; ++b) chunk.directory[b + 1] += chunk.directory[b];
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

// Slots of an inner node's chunk: child c routes in slot c and is rewarded in slot (children + c). Of a leaf's: its arms
// in order of position. Reward rows: nodes first, then arms.
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
        chunks[node] = builder.build();
    });
    return chunks;
}

}  // namespace treetop

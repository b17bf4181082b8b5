// Dense item vectors to a tree for a measure: k-means with as many centres as a level has nodes, leaves of at most
// `max_leaf` items. Not of equal size: a leaf that must fill up takes items from where they belong, and the search then
// has to look in more leaves (docs/performance.md has the numbers).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "cluster.hpp"
#include "parallel.hpp"
#include "rng.hpp"
#include "simd.hpp"

namespace treetop {

struct VectorClustering {
    std::int64_t branching = 128;  // children of a node, about
    std::int64_t max_leaf = 100;
    bool spherical = true;  // centres of length 1, compared by the dot product; else means, compared by distance
    int iterations = 10;
    std::uint64_t seed = 0;
    int threads = 0;
    static constexpr double fill = 0.75;            // what a leaf is meant to hold, in parts of max_leaf
    static constexpr std::size_t per_centre = 256;  // points that centres are found with, at most
    static constexpr int attempts = 6;              // at splitting what is too large, before it is cut in order
};

// n rows of d numbers, one behind the other.
struct Dense {
    const float* data = nullptr;
    std::size_t n = 0, d = 0;
    const float* row(std::size_t i) const { return data + i * d; }
};

// Centres as `nearest` reads them: 32 side by side, feature by feature; those that fill up the last block are never
// nearest.
struct Centres {
    static constexpr std::size_t lanes = 32;
    std::size_t k = 0, d = 0;
    std::vector<float> blocks, offset;

    Centres(std::span<const float> rows, std::size_t d_, bool spherical)
        : k(rows.size() / d_),
          d(d_),
          blocks((k + lanes - 1) / lanes * lanes * d_, 0.0f),
          offset((k + lanes - 1) / lanes * lanes, std::numeric_limits<float>::infinity()) {
        for (std::size_t c = 0; c < k; ++c) {
            double square = 0;
            for (std::size_t j = 0; j < d; ++j) {
                const float v = rows[c * d + j];
                square += static_cast<double>(v) * v;
                blocks[(c / lanes * d + j) * lanes + c % lanes] = v;
            }
            offset[c] = spherical ? 0.0f : static_cast<float>(square / 2);
        }
    }
};

// The nearest centre of every point; of equally near ones the first.
inline std::vector<std::int32_t> nearest_centres(const Dense& points, const Centres& centres, int threads,
                                                 const Watch& watch) {
    constexpr std::size_t tile = 64;
    std::vector<std::int32_t> label(points.n);
    const Kernels& kernels = chosen_kernels();
    parallel_for((points.n + tile - 1) / tile, threads, 4, [&](int, std::size_t t) {
        watch.check();
        const std::size_t first = t * tile, count = std::min(tile, points.n - first);
        kernels.nearest(points.row(first), count, points.d, centres.blocks.data(), centres.offset.data(), centres.k,
                        label.data() + first);
    });
    return label;
}

// Where the points of each of k labels are: order[start[c]] to order[start[c + 1]], ascending.
struct Grouped {
    std::vector<std::size_t> start;
    std::vector<std::int32_t> order;

    Grouped(std::span<const std::int32_t> label, std::size_t k) : start(k + 1, 0), order(label.size()) {
        for (const std::int32_t c : label) ++start[static_cast<std::size_t>(c) + 1];
        std::partial_sum(start.begin(), start.end(), start.begin());
        std::vector<std::size_t> next(start.begin(), start.end() - 1);
        for (std::size_t i = 0; i < label.size(); ++i)
            order[next[static_cast<std::size_t>(label[i])]++] = static_cast<std::int32_t>(i);
    }
};

inline void put_centre(std::span<const double> sum, std::size_t count, bool spherical, float* out) {
    const double square = std::inner_product(sum.begin(), sum.end(), sum.begin(), 0.0);
    const double by = spherical ? std::sqrt(square) : static_cast<double>(count);
    for (std::size_t j = 0; j < sum.size(); ++j) out[j] = by > 0 ? static_cast<float>(sum[j] / by) : 0.0f;
}

// Lloyd's iterations from k distinct points; a centre that no point is nearest to begins anew at another point.
inline Centres find_centres(const Dense& points, std::size_t k, const VectorClustering& how, std::uint64_t key,
                            int threads, const Watch& watch) {
    const std::size_t d = points.d;
    std::vector<float> rows(k * d);
    std::vector<std::int32_t> order(points.n), label;
    std::iota(order.begin(), order.end(), 0);
    Stream stream(key);
    for (std::size_t c = 0; c < k; ++c) {
        std::swap(order[c], order[c + stream.below(points.n - c)]);
        const float* chosen = points.row(static_cast<std::size_t>(order[c]));
        std::copy_n(chosen, d, rows.begin() + static_cast<std::ptrdiff_t>(c * d));
    }
    for (int iteration = 0; iteration < how.iterations; ++iteration) {
        auto next = nearest_centres(points, Centres(rows, d, how.spherical), threads, watch);
        if (next == label) break;
        label = std::move(next);
        const Grouped groups(label, k);
        parallel_for(k, threads, 1, [&](int, std::size_t c) {
            std::vector<double> sum(d, 0);
            for (std::size_t i = groups.start[c]; i < groups.start[c + 1]; ++i) {
                const float* point = points.row(static_cast<std::size_t>(groups.order[i]));
                for (std::size_t j = 0; j < d; ++j) sum[j] += point[j];
            }
            const std::size_t count = groups.start[c + 1] - groups.start[c];
            if (count > 0) put_centre(sum, count, how.spherical, rows.data() + c * d);
        });
        for (std::size_t c = 0; c < k; ++c)
            if (groups.start[c] == groups.start[c + 1])
                std::copy_n(points.row(stream.below(points.n)), d, rows.begin() + static_cast<std::ptrdiff_t>(c * d));
    }
    return {rows, d, how.spherical};
}

// Items that stand below one node, and how many levels are still to come.
struct Branch {
    std::vector<std::int32_t> items;
    int levels = 0;
};

class VectorTreeBuilder {
public:
    VectorTreeBuilder(const Dense& vectors, const VectorClustering& how, Watch& watch)
        : vectors_(vectors), how_(how), watch_(watch), full_(static_cast<std::size_t>(how.max_leaf)) {}

    Hierarchy build() {
        Hierarchy tree{{-1}, std::vector<std::int32_t>(vectors_.n, 0)};
        std::vector<Branch> level(1);
        level[0].items.resize(vectors_.n);
        std::iota(level[0].items.begin(), level[0].items.end(), 0);
        const double needed = std::log(wanted_leaves(vectors_.n)) / std::log(static_cast<double>(how_.branching));
        level[0].levels = std::max(1, static_cast<int>(std::ceil(needed - 1e-9)));
        watch_.begin(static_cast<std::int64_t>(vectors_.n) * level[0].levels);
        for (std::size_t first = 0; !level.empty();) {
            std::vector<std::vector<Branch>> parts(level.size());
            const auto one = [&](std::size_t i, int threads) {
                const Branch& branch = level[i];
                if (branch.levels == 0 || branch.items.size() <= full_) return;
                parts[i] = split(branch, derive(how_.seed, first + i), threads);
                watch_.advance(static_cast<std::int64_t>(branch.items.size()));
            };
            // Few nodes: all threads inside each; many: one thread a node. The result is the same.
            if (level.size() < static_cast<std::size_t>(worker_count(how_.threads, vectors_.n)))
                for (std::size_t i = 0; i < level.size(); ++i) one(i, how_.threads);
            else
                parallel_for(level.size(), how_.threads, 1, [&](int, std::size_t i) { one(i, 1); });
            std::vector<Branch> next;
            for (std::size_t i = 0; i < level.size(); ++i) {
                const auto node = static_cast<std::int32_t>(first + i);
                if (parts[i].empty())
                    for (const std::int32_t item : level[i].items) tree.leaf_of[item] = node;
                for (Branch& part : parts[i]) {
                    tree.parents.push_back(node);
                    next.push_back(std::move(part));
                }
            }
            first += level.size();
            level = std::move(next);
        }
        return tree;
    }

private:
    double wanted_leaves(std::size_t items) const {
        return std::max(2.0, static_cast<double>(items) / (how_.fill * static_cast<double>(how_.max_leaf)));
    }

    std::vector<Branch> split(const Branch& branch, std::uint64_t key, int threads) const {
        std::vector<Branch> out;
        if (branch.levels > 1) {
            const double each = std::pow(wanted_leaves(branch.items.size()), 1.0 / branch.levels);
            for (auto& items : cut(branch.items, static_cast<std::size_t>(std::ceil(each - 1e-9)), key, threads))
                out.push_back({std::move(items), branch.levels - 1});
            if (out.size() > 1) return out;
            out.clear();  // they are all alike: no level in between tells them apart
        }
        add_leaves(branch.items, key, threads, 0, out);
        return out;
    }

    // Leaves of at most max_leaf items; what is too large is cut again.
    void add_leaves(const std::vector<std::int32_t>& items, std::uint64_t key, int threads, int attempt,
                    std::vector<Branch>& out) const {
        if (items.size() <= full_) {
            out.push_back({items, 0});
            return;
        }
        const auto k = static_cast<std::size_t>(std::ceil(wanted_leaves(items.size()) - 1e-9));
        const auto parts = attempt < how_.attempts ? cut(items, k, key, threads) : decltype(cut(items, k, key, 1)){};
        if (parts.size() > 1) {
            for (std::size_t c = 0; c < parts.size(); ++c)
                add_leaves(parts[c], derive(key, c + 1), threads, attempt + 1, out);
            return;
        }
        const std::size_t pieces = (items.size() + full_ - 1) / full_;
        auto next = items.begin();
        for (std::size_t c = 0; c < pieces; ++c) {
            const auto end = next + static_cast<std::ptrdiff_t>(share(items.size(), pieces, c));
            out.push_back({{next, end}, 0});
            next = end;
        }
    }

    // The items by their nearest of k centres, which are found with some of them; parts without items are left out.
    std::vector<std::vector<std::int32_t>> cut(const std::vector<std::int32_t>& items, std::size_t k, std::uint64_t key,
                                               int threads) const {
        k = std::min(std::max<std::size_t>(k, 2), items.size());
        const std::size_t some = std::min(items.size(), k * how_.per_centre);
        std::vector<std::int32_t> sample = items;
        Stream stream(derive(key, 0));
        for (std::size_t i = 0; some < items.size() && i < some; ++i)
            std::swap(sample[i], sample[i + stream.below(sample.size() - i)]);
        sample.resize(some);
        std::vector<float> memory;
        const Centres centres = find_centres(gather(sample, memory), k, how_, key, threads, watch_);
        const Grouped groups(nearest_centres(gather(items, memory), centres, threads, watch_), k);
        std::vector<std::vector<std::int32_t>> out;
        for (std::size_t c = 0; c < k; ++c) {
            if (groups.start[c] == groups.start[c + 1]) continue;
            out.emplace_back();
            for (std::size_t i = groups.start[c]; i < groups.start[c + 1]; ++i)
                out.back().push_back(items[static_cast<std::size_t>(groups.order[i])]);
        }
        return out;
    }

    // The vectors of some items side by side; all of them lie so already.
    Dense gather(const std::vector<std::int32_t>& items, std::vector<float>& memory) const {
        if (items.size() == vectors_.n && std::is_sorted(items.begin(), items.end())) return vectors_;
        memory.resize(items.size() * vectors_.d);
        for (std::size_t i = 0; i < items.size(); ++i)
            std::copy_n(vectors_.row(static_cast<std::size_t>(items[i])), vectors_.d,
                        memory.begin() + static_cast<std::ptrdiff_t>(i * vectors_.d));
        return {memory.data(), items.size(), vectors_.d};
    }

    const Dense& vectors_;
    const VectorClustering& how_;
    Watch& watch_;
    std::size_t full_;
};

// Nodes are numbered level by level; leaves need not all be equally deep.
inline Hierarchy build_vector_tree(const Dense& vectors, const VectorClustering& how, Watch& watch) {
    return VectorTreeBuilder(vectors, how, watch).build();
}

}  // namespace treetop

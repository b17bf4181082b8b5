// Arm vectors to a balanced tree: recursive balanced k-means, or the spectral co-clustering split of Dhillon (2001).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel.hpp"
#include "rng.hpp"
#include "rows.hpp"

namespace treetop {

struct Clustering {
    std::int64_t branching = 2;
    std::int64_t max_leaf = 100;
    bool cocluster = false;
    int iterations = 20;
    std::uint64_t seed = 0;
    int threads = 0;
};

// The vectors of one node's arms over the features that occur in them.
struct Points {
    std::vector<std::int64_t> start{0};
    std::vector<std::int32_t> index;
    std::vector<float> value;
    std::size_t columns = 0;

    std::size_t size() const { return start.size() - 1; }
    double dot(std::size_t i, const std::vector<double>& c) const {
        double sum = 0;
        for (auto j = start[i]; j < start[i + 1]; ++j) sum += static_cast<double>(value[j]) * c[index[j]];
        return sum;
    }
    void axpy(std::size_t i, double a, std::vector<double>& c) const {
        for (auto j = start[i]; j < start[i + 1]; ++j) c[index[j]] += a * value[j];
    }
};

inline Points gather_points(const Rows& vectors, const std::vector<std::int32_t>& arms, Renumbering& local) {
    Points points;
    local.clear();
    for (const std::int32_t arm : arms) {
        const Row row = vectors[arm];
        for (const std::int32_t f : row.index) points.index.push_back(local(f));
        points.value.insert(points.value.end(), row.value.begin(), row.value.end());
        points.start.push_back(static_cast<std::int64_t>(points.index.size()));
    }
    points.columns = local.size();
    return points;
}

// Part c of n things cut into `parts` nearly equal ones.
inline std::size_t share(std::size_t n, std::size_t parts, std::size_t c) { return n / parts + (c < n % parts); }

// The points in descending order of `key` (ties: the earlier point), cut into two halves.
inline std::vector<std::int32_t> halve(const std::vector<double>& key) {
    std::vector<std::int32_t> order(key.size()), label(key.size(), 1);
    std::iota(order.begin(), order.end(), 0);
    const std::size_t half = share(key.size(), 2, 0);
    const auto ahead = [&](std::int32_t a, std::int32_t b) { return key[a] != key[b] ? key[a] > key[b] : a < b; };
    if (half < order.size()) std::nth_element(order.begin(), order.begin() + half, order.end(), ahead);
    for (std::size_t i = 0; i < half; ++i) label[order[i]] = 0;
    return label;
}

// Points to clusters of equal size by affinity[i * parts + c]: the most decided point chooses first.
inline std::vector<std::int32_t> assign_balanced(const std::vector<double>& affinity, std::size_t n,
                                                 std::size_t parts) {
    if (parts == 2) {
        std::vector<double> lead(n);
        for (std::size_t i = 0; i < n; ++i) lead[i] = affinity[2 * i] - affinity[2 * i + 1];
        return halve(lead);
    }
    std::vector<double> margin(n);
    std::vector<std::int32_t> order(n), label(n);
    std::vector<std::size_t> room(parts);
    for (std::size_t c = 0; c < parts; ++c) room[c] = share(n, parts, c);
    for (std::size_t i = 0; i < n; ++i) {
        std::vector<double> row(affinity.begin() + i * parts, affinity.begin() + (i + 1) * parts);
        std::partial_sort(row.begin(), row.begin() + 2, row.end(), std::greater<>());
        margin[i] = row[0] - row[1];
    }
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::int32_t a, std::int32_t b) { return margin[a] != margin[b] ? margin[a] > margin[b] : a < b; });
    for (const std::int32_t i : order) {
        std::size_t best = parts;
        for (std::size_t c = 0; c < parts; ++c)
            if (room[c] > 0 && (best == parts || affinity[i * parts + c] > affinity[i * parts + best])) best = c;
        label[i] = static_cast<std::int32_t>(best);
        --room[best];
    }
    return label;
}

// Balanced k-means: Lloyd's iterations in which every cluster keeps its size. Spherical (cosine to a unit centroid) or
// Euclidean (nearest mean).
inline std::vector<std::int32_t> balanced_kmeans(const Points& points, std::size_t parts, bool spherical,
                                                 int iterations, std::uint64_t key, int threads, const Watch& watch) {
    const std::size_t n = points.size();
    std::vector<std::vector<double>> centre(parts, std::vector<double>(points.columns, 0));
    std::vector<double> offset(parts, 0);
    std::vector<std::int32_t> order(n), label;
    std::iota(order.begin(), order.end(), 0);
    Stream stream(key);
    for (std::size_t c = 0; c < std::min(parts, n); ++c) {  // the first centroids: distinct points
        std::swap(order[c], order[c + stream.below(n - c)]);
        points.axpy(order[c], 1.0, centre[c]);
    }
    std::vector<double> affinity(n * parts);
    for (int iteration = 0; iteration < iterations; ++iteration) {
        watch.check();
        for (std::size_t c = 0; c < parts; ++c) {
            const double square = std::inner_product(centre[c].begin(), centre[c].end(), centre[c].begin(), 0.0);
            if (spherical && square > 0)
                for (double& v : centre[c]) v /= std::sqrt(square);
            offset[c] = spherical ? 0 : square / 2;
        }
        parallel_for(n, threads, 256, [&](int, std::size_t i) {
            for (std::size_t c = 0; c < parts; ++c) affinity[i * parts + c] = points.dot(i, centre[c]) - offset[c];
        });
        auto next = assign_balanced(affinity, n, parts);
        if (next == label) break;
        label = std::move(next);
        parallel_for(parts, threads, 1, [&](int, std::size_t c) {
            std::fill(centre[c].begin(), centre[c].end(), 0.0);
            const double weight =
                spherical ? 1.0 : 1.0 / static_cast<double>(std::max<std::size_t>(1, share(n, parts, c)));
            for (std::size_t i = 0; i < n; ++i)
                if (label[i] == static_cast<std::int32_t>(c)) points.axpy(i, weight, centre[c]);
        });
    }
    return label;
}

// Dhillon (2001): arms and features as the two sides of a weighted graph with matrix M >= 0. The leading left singular
// vectors of D1^(-1/2) M D2^(-1/2) after the trivial one, scaled by D1^(-1/2), place the arms; found by orthogonal
// iteration. Two parts take the second singular vector, more parts ceil(log2 parts) of them.
inline std::vector<std::int32_t> cocluster(const Points& points, std::size_t parts, int iterations, std::uint64_t key,
                                           const Watch& watch) {
    const std::size_t n = points.size();
    std::size_t vectors = 1;
    while ((std::size_t{1} << vectors) < parts) ++vectors;
    std::vector<double> row(n, 0), column(points.columns, 0), trivial(n);
    for (std::size_t i = 0; i < n; ++i) {
        for (auto j = points.start[i]; j < points.start[i + 1]; ++j) {
            row[i] += points.value[j];
            column[points.index[j]] += points.value[j];
        }
    }
    const double total = std::accumulate(row.begin(), row.end(), 0.0);
    for (double& v : column) v = v > 0 ? 1 / std::sqrt(v) : 0;
    for (std::size_t i = 0; i < n; ++i) {
        trivial[i] = total > 0 ? std::sqrt(row[i] / total) : 0;
        row[i] = row[i] > 0 ? 1 / std::sqrt(row[i]) : 0;
    }
    Stream stream(key);
    std::vector<std::vector<double>> basis(vectors, std::vector<double>(n));
    for (auto& u : basis)
        for (double& v : u) v = stream.uniform() - 0.5;
    std::vector<double> feature(points.columns);
    const auto remove = [&](std::vector<double>& u, const std::vector<double>& from) {
        const double along = std::inner_product(u.begin(), u.end(), from.begin(), 0.0);
        for (std::size_t i = 0; i < n; ++i) u[i] -= along * from[i];
    };
    for (int iteration = 0; iteration < 5 * iterations; ++iteration) {
        watch.check();
        for (std::size_t v = 0; v < vectors; ++v) {
            auto& u = basis[v];
            std::fill(feature.begin(), feature.end(), 0.0);
            for (std::size_t i = 0; i < n; ++i) points.axpy(i, row[i] * u[i], feature);
            for (std::size_t f = 0; f < feature.size(); ++f) feature[f] *= column[f] * column[f];
            for (std::size_t i = 0; i < n; ++i) u[i] = row[i] * points.dot(i, feature);
            remove(u, trivial);
            for (std::size_t before = 0; before < v; ++before) remove(u, basis[before]);
            const double length = std::sqrt(std::inner_product(u.begin(), u.end(), u.begin(), 0.0));
            if (length > 0)
                for (double& value : u) value /= length;
        }
    }
    for (auto& u : basis)
        for (std::size_t i = 0; i < n; ++i) u[i] *= row[i];
    if (parts == 2) return halve(basis[0]);
    Points placed;
    placed.columns = vectors;
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t v = 0; v < vectors; ++v) {
            placed.index.push_back(static_cast<std::int32_t>(v));
            placed.value.push_back(static_cast<float>(basis[v][i]));
        }
        placed.start.push_back(static_cast<std::int64_t>(placed.index.size()));
    }
    return balanced_kmeans(placed, parts, false, iterations, derive(key, 1), 1, watch);
}

struct Hierarchy {
    std::vector<std::int32_t> parents, leaf_of;
};

// The arms of one node: those with a vector, which are clustered, and those without, which fill up what is left so that
// sibling sizes never differ by more than one.
struct Member {
    std::vector<std::int32_t> placed, empty;
    std::size_t size() const { return placed.size() + empty.size(); }
};

inline std::vector<Member> split(const Rows& vectors, const Member& node, const Clustering& how, std::uint64_t key,
                                 int threads, Renumbering& local, const Watch& watch) {
    const auto parts = static_cast<std::size_t>(how.branching);
    std::vector<Member> out(parts);
    if (!node.placed.empty()) {
        const Points points = gather_points(vectors, node.placed, local);
        const auto label = how.cocluster ? cocluster(points, parts, how.iterations, key, watch)
                                         : balanced_kmeans(points, parts, true, how.iterations, key, threads, watch);
        for (std::size_t i = 0; i < label.size(); ++i) out[label[i]].placed.push_back(node.placed[i]);
    }
    std::size_t next = 0;
    const std::size_t total = node.size();
    for (std::size_t c = 0; c < parts; ++c) {
        const std::size_t wanted = share(total, parts, c) - out[c].placed.size();
        out[c].empty.assign(node.empty.begin() + next, node.empty.begin() + next + wanted);
        next += wanted;
    }
    return out;
}

inline int depth_of(std::size_t arms, const Clustering& how) {
    int depth = 0;
    for (; arms > static_cast<std::size_t>(how.max_leaf); ++depth) arms = share(arms, how.branching, 0);
    return depth;
}

// What is built: the whole tree, its top `levels` alone, or what is below one of its nodes, which stands at a level and
// a position in it. A node is split as it is in the whole tree.
struct Extent {
    std::int64_t level = 0, position = 0;
    std::int64_t levels = -1;  // -1: until no leaf holds more than max_leaf arms
};

// All leaves at one depth: the smallest at which none holds more than max_leaf arms. Nodes are numbered level by level.
inline Hierarchy build_hierarchy(const Rows& vectors, const Clustering& how, const Extent& extent, Watch& watch) {
    const std::size_t arms = vectors.size();
    Hierarchy tree{{-1}, std::vector<std::int32_t>(arms)};
    std::vector<Member> level(1);
    for (std::size_t arm = 0; arm < arms; ++arm)
        (vectors[arm].size() ? level[0].placed : level[0].empty).push_back(static_cast<std::int32_t>(arm));
    const std::int64_t levels = extent.levels < 0 ? depth_of(arms, how) : extent.levels;
    watch.begin(static_cast<std::int64_t>(arms) * levels);
    std::size_t first = 0;
    const auto branching = static_cast<std::uint64_t>(how.branching);
    std::uint64_t above = 0, width = 1;  // nodes of the whole tree above this level, and in it
    for (std::int64_t i = 0; i < extent.level; ++i) {
        above += width;
        width *= branching;
    }
    auto position = static_cast<std::uint64_t>(extent.position);
    std::vector<Renumbering> renumberings(worker_count(how.threads, arms), Renumbering(vectors.columns));
    for (std::int64_t left = levels; left > 0; --left) {
        std::vector<std::vector<Member>> parts(level.size());
        const auto one = [&](int worker, std::size_t i, int threads) {
            const std::uint64_t key = derive(how.seed, above + position + i);
            parts[i] = split(vectors, level[i], how, key, threads, renumberings[worker], watch);
            watch.advance(static_cast<std::int64_t>(level[i].size()));
        };
        // Few nodes: all threads inside each; many: one thread a node. The result is the same.
        if (level.size() < renumberings.size())
            for (std::size_t i = 0; i < level.size(); ++i) one(0, i, how.threads);
        else
            parallel_for(level.size(), how.threads, 1, [&](int worker, std::size_t i) { one(worker, i, 1); });
        std::vector<Member> next;
        for (std::size_t i = 0; i < level.size(); ++i) {
            for (Member& part : parts[i]) {
                tree.parents.push_back(static_cast<std::int32_t>(first + i));
                next.push_back(std::move(part));
            }
        }
        first += level.size();
        level = std::move(next);
        above += width;
        width *= branching;
        position *= branching;
    }
    for (std::size_t i = 0; i < level.size(); ++i) {
        for (const std::int32_t arm : level[i].placed) tree.leaf_of[arm] = static_cast<std::int32_t>(first + i);
        for (const std::int32_t arm : level[i].empty) tree.leaf_of[arm] = static_cast<std::int32_t>(first + i);
    }
    return tree;
}

}  // namespace treetop

// Python's way to building trees.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "cluster.hpp"
#include "python.hpp"
#include "vector_tree.hpp"
#include "watched.hpp"

namespace treetop {

namespace {

using namespace nb::literals;

auto build_tree(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                std::int64_t branching, std::int64_t max_leaf, bool cocluster, int iterations, std::int64_t seed,
                int threads, const Progress& progress, std::int64_t level, std::int64_t position, std::int64_t levels) {
    const Rows vectors = rows(start, index, value, columns);
    Hierarchy tree;
    Watch watch;
    watched(progress, watch, [&] {
        validate(vectors, "arm vectors");
        within<std::int64_t>("branching", branching, 2, std::max<std::int64_t>(vectors.size(), 65536));
        within<std::int64_t>("max_leaf", max_leaf, 1, std::numeric_limits<std::int64_t>::max());
        within("iterations", iterations, 1, 10000);
        for (const float v : vectors.value)
            if (cocluster) within("a value to co-cluster", v, 0.0f, std::numeric_limits<float>::max());
        const Clustering how{branching, max_leaf, cocluster, iterations, static_cast<std::uint64_t>(seed), threads};
        within<std::int64_t>("level", level, 0, 63);
        within<std::int64_t>("position", position, 0, std::numeric_limits<std::int32_t>::max());
        within<std::int64_t>("levels", levels, -1, depth_of(vectors.size() + 1, how));  // a sibling may have one more
        tree = build_hierarchy(vectors, how, {level, position, levels}, watch);
    });
    return std::make_tuple(pack1(std::move(tree.parents)), pack1(std::move(tree.leaf_of)));
}

auto build_dense_tree(In<float> vectors, std::int64_t columns, std::int64_t branching, std::int64_t max_leaf,
                      bool spherical, int iterations, std::int64_t seed, int threads, const Progress& progress) {
    const auto values = view(vectors);
    Hierarchy tree;
    Watch watch;
    watched(progress, watch, [&] {
        within<std::int64_t>("columns", columns, 1, 1 << 20);
        const auto d = static_cast<std::size_t>(columns);
        if (values.empty() || values.size() % d != 0)
            throw std::invalid_argument(std::to_string(values.size()) + " numbers are not vectors of " +
                                        std::to_string(d));
        for (const float v : values)
            if (!std::isfinite(v)) throw std::invalid_argument("arm vectors: a value is " + std::to_string(v));
        within<std::int64_t>("branching", branching, 2, 65536);
        within<std::int64_t>("max_leaf", max_leaf, 1, std::numeric_limits<std::int32_t>::max());
        within("iterations", iterations, 1, 10000);
        const Dense dense{values.data(), values.size() / d, d};
        const VectorClustering how{branching, max_leaf, spherical, iterations, static_cast<std::uint64_t>(seed),
                                   threads};
        tree = build_vector_tree(dense, how, watch);
    });
    return std::make_tuple(pack1(std::move(tree.parents)), pack1(std::move(tree.leaf_of)));
}

}  // namespace

void bind_trees(nb::module_& m) {
    m.def(
        "build_hierarchy", &build_tree, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
        "columns"_a, "branching"_a, "max_leaf"_a, "cocluster"_a, "iterations"_a, "seed"_a, "threads"_a,
        "progress"_a = nb::none(), "level"_a = 0, "position"_a = 0, "levels"_a = -1,
        "parents and leaf_of of a balanced tree over arm vectors: the whole tree, or so many `levels` of what is below "
        "the node at a `level` and `position` of it, which has these arms.");
    m.def("build_vector_tree", &build_dense_tree, "vectors"_a.noconvert(), "columns"_a, "branching"_a, "max_leaf"_a,
          "spherical"_a, "iterations"_a, "seed"_a, "threads"_a, "progress"_a = nb::none(),
          "parents and leaf_of of a tree over dense vectors, by k-means; no leaf has more than max_leaf.");
}

}  // namespace treetop

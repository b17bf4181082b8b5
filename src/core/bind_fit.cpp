// Python's way to whatever takes long: trees and fits. An onlooker in Python sees how far they are and may stop them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "cluster.hpp"
#include "fit.hpp"
#include "python.hpp"
#include "truth.hpp"
#include "vector_tree.hpp"

namespace treetop {

namespace {

using namespace nb::literals;
using Progress = std::optional<nb::typed<nb::callable, nb::object(std::int64_t, std::int64_t)>>;  // done, total
template <class T>
using Maybe = std::optional<In<T>>;

template <class T>
Out<T> pack_grown(Growing<T>&& data) {
    const std::size_t n = data.size();
    T* const kept = data.release();
    nb::capsule owner(kept, [](void* p) noexcept { std::free(p); });
    return Out<T>(kept, {n}, owner);
}

// Runs work() on a thread of its own without the GIL, while this one hears Ctrl-C and tells `progress` how far it is,
// ten times a second. What either of them throws ends the work and is thrown here.
template <class Work>
void watched(const Progress& progress, Watch& watch, Work&& work) {
    std::mutex guard;
    std::condition_variable ended;
    bool over = false;
    std::exception_ptr failure, interrupt;
    const auto run = [&] {
        try {
            work();
        } catch (...) {
            failure = std::current_exception();
        }
        const std::lock_guard<std::mutex> lock(guard);
        over = true;
        ended.notify_one();
    };
    std::thread thread;
    try {
        thread = std::thread(run);
    } catch (const std::system_error&) {
        const nb::gil_scoped_release release;
        run();  // the system gives no more threads: nobody looks on
    }
    for (bool running = true; running;) {
        {
            const nb::gil_scoped_release release;
            std::unique_lock<std::mutex> lock(guard);
            running = !ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return over; });
        }
        if (interrupt || (!running && failure)) continue;
        try {
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (progress && watch.total() > 0) (*progress)(watch.done(), watch.total());
        } catch (...) {
            interrupt = std::current_exception();
            watch.stop();
        }
    }
    if (thread.joinable()) thread.join();
    if (interrupt) std::rethrow_exception(interrupt);
    if (failure) std::rethrow_exception(failure);
}

auto build_tree(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                std::int64_t branching, std::int64_t max_leaf, bool cocluster, int iterations, std::int64_t seed,
                int threads, const Progress& progress) {
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
        tree = build_hierarchy(
            vectors, {branching, max_leaf, cocluster, iterations, static_cast<std::uint64_t>(seed), threads}, watch);
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

// What every fit refuses.
void check_fit(const Rows& contexts, const Groups& groups, const Solver& solver, std::span<const float> thresholds,
               const Known& known) {
    validate(contexts, "context");
    check_groups(groups, contexts.size());
    within("cost", solver.cost, 1e-12, 1e12);
    within("tolerance", solver.tolerance, 0.0, 1e12);
    within<std::int64_t>("passes", solver.passes, 0, std::numeric_limits<std::int64_t>::max());
    within<std::int64_t>("exact_up_to", solver.exact_up_to, 0, 16384);  // the matrix has its square
    if (!thresholds.empty() && thresholds.size() != static_cast<std::size_t>(contexts.columns) + 1)
        throw std::invalid_argument(std::to_string(thresholds.size()) + " thresholds for " +
                                    std::to_string(contexts.columns) + " features and the bias");
    for (const float threshold : thresholds) within("threshold", threshold, 0.0f, std::numeric_limits<float>::max());
    for (const float y : groups.target)
        if (solver.loss == Loss::squared_hinge && y != 1 && y != -1)
            throw std::invalid_argument("a target of the squared hinge is " + std::to_string(y) + ", not 1 or -1");
    for (const Rows& rows : known.rows) {
        if (known.keep.size() != groups.size() || rows.size() != groups.size())
            throw std::invalid_argument(std::to_string(known.keep.size()) + " marks and " +
                                        std::to_string(rows.size()) + " known rows for " +
                                        std::to_string(groups.size()) + " groups");
        check_pointers(rows, "known weights");
    }
}

std::span<const std::uint8_t> marks(const In<bool>& keep) {
    return {reinterpret_cast<const std::uint8_t*>(keep.data()), keep.size()};
}

auto pack_weights(Weights&& weights) {
    return std::make_tuple(pack1(std::move(weights.start)), pack_grown(std::move(weights.index)),
                           pack_grown(std::move(weights.value)));
}

auto fit_groups(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                In<std::int64_t> group_start, In<std::int32_t> group_rows, In<float> target, std::int32_t loss,
                double cost, double tolerance, std::int64_t passes, std::int64_t exact_up_to, In<float> thresholds,
                std::int64_t seed, int threads, const Progress& progress, const Maybe<bool>& keep,
                const Maybe<std::int64_t>& known_start, const Maybe<std::int32_t>& known_index,
                const Maybe<float>& known_value) {
    const Rows contexts = rows(start, index, value, columns);
    const Groups groups{view(group_start), view(group_rows), view(target)};
    Known known;
    known.rows.resize(keep ? 1 : 0);  // refused below unless all four are given
    if (keep && known_start && known_index && known_value)
        known = {marks(*keep), {rows(*known_start, *known_index, *known_value, columns + 1)}};
    std::vector<Weights> weights;
    Watch watch;
    watched(progress, watch, [&] {
        within("loss", loss, 0, 2);
        const Solver solver{static_cast<Loss>(loss), cost, tolerance, passes, exact_up_to};
        check_fit(contexts, groups, solver, view(thresholds), known);
        weights = fit(contexts, groups, {{}, 0, 1}, solver, view(thresholds), static_cast<std::uint64_t>(seed), known,
                      threads, watch);
    });
    return pack_weights(std::move(weights.front()));
}

using Packed = std::tuple<In<std::int64_t>, In<std::int32_t>, In<float>>;  // start, index, value

auto fit_held_out(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                  In<std::int64_t> group_start, In<std::int32_t> group_rows, In<float> target, In<bool> fold,
                  double cost, double tolerance, double held_out_tolerance, std::int64_t passes, In<float> thresholds,
                  std::int64_t seed, int threads, const Maybe<bool>& keep, const std::vector<Packed>& known_rows) {
    const Rows contexts = rows(start, index, value, columns);
    const Groups groups{view(group_start), view(group_rows), view(target)};
    const Folds folds{marks(fold), held_out_tolerance};
    Known known;
    if (keep) {
        known.keep = marks(*keep);
        for (const auto& [s, i, v] : known_rows) known.rows.push_back(rows(s, i, v, columns + 1));
    }
    std::vector<Weights> weights;
    Watch watch;
    watched({}, watch, [&] {
        const Solver solver{Loss::squared_hinge, cost, tolerance, passes, 0, true};
        check_fit(contexts, groups, solver, view(thresholds), known);
        within("held_out_tolerance", held_out_tolerance, 0.0, 1e12);
        if (folds.of.size() != contexts.size())
            throw std::invalid_argument(std::to_string(folds.of.size()) + " folds of " +
                                        std::to_string(contexts.size()) + " contexts");
        if (keep && known.rows.size() != folds.parts)
            throw std::invalid_argument("known rows of " + std::to_string(known.rows.size()) + " parts; there are " +
                                        std::to_string(folds.parts));
        weights = fit(contexts, groups, folds, solver, view(thresholds), static_cast<std::uint64_t>(seed), known,
                      threads, watch);
    });
    return std::make_tuple(pack_weights(std::move(weights[0])), pack_weights(std::move(weights[1])),
                           pack_weights(std::move(weights[2])));
}

Out<std::int64_t> print_groups(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                               In<std::int64_t> group_start, In<std::int32_t> group_rows, In<float> target,
                               std::int64_t key, int threads) {
    const Rows contexts = rows(start, index, value, columns);
    const Groups groups{view(group_start), view(group_rows), view(target)};
    std::vector<std::int64_t> found;
    {
        const nb::gil_scoped_release release;
        validate(contexts, "context");
        check_groups(groups, contexts.size());
        found = fingerprints(contexts, groups, static_cast<std::uint64_t>(key), threads);
    }
    return pack1(std::move(found));
}

auto fit_sparse_truth(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                      In<std::int64_t> column_start, In<std::int32_t> column_index, In<float> column_value,
                      In<std::int64_t> arm_start, In<std::int32_t> arm_index, In<float> arm_value, double ridge,
                      std::int64_t kept, int threads, const Progress& progress) {
    const Rows contexts = rows(start, index, value, columns);
    const auto n = static_cast<std::int64_t>(contexts.size());
    const Labelled data{contexts, rows(column_start, column_index, column_value, n),
                        rows(arm_start, arm_index, arm_value, n)};
    Weights weights;
    Watch watch;
    watched(progress, watch, [&] {
        validate(data.contexts, "context");
        validate(data.columns, "column");
        validate(data.arms, "arm");
        if (static_cast<std::int64_t>(data.columns.size()) != columns)
            throw std::invalid_argument(std::to_string(data.columns.size()) + " columns of " + std::to_string(columns) +
                                        " features");
        within("ridge", ridge, 1e-12, 1e12);
        within<std::int64_t>("kept", kept, 1, 4096);  // the matrix has its square
        weights = fit_truth(data, ridge, static_cast<std::size_t>(kept), threads, watch);
    });
    return std::make_tuple(pack1(std::move(weights.start)), pack_grown(std::move(weights.index)),
                           pack_grown(std::move(weights.value)));
}

Out2<double> sparse_means(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                          In<std::int64_t> weight_start, In<std::int32_t> weight_index, In<float> weight_value,
                          In<std::int64_t> chosen, In<std::int32_t> arms, int threads) {
    const Rows contexts = rows(start, index, value, columns);
    const Rows weights = rows(weight_start, weight_index, weight_value, columns + 1);
    const std::size_t n = chosen.size(), k = n > 0 ? arms.size() / n : 0;
    std::vector<double> found;
    {
        const nb::gil_scoped_release release;
        validate(contexts, "context");
        check_pointers(weights, "weights");
        if (arms.size() != n * k)
            throw std::invalid_argument(std::to_string(arms.size()) + " arms for " + std::to_string(n) + " rows");
        for (const std::int64_t row : view(chosen))
            within<std::int64_t>("row", row, 0, static_cast<std::int64_t>(contexts.size()) - 1);
        // Rows that are asked for are looked at, not all: there may be far more of them, in a mapped file.
        std::vector<bool> known(weights.size());
        for (const std::int32_t arm : view(arms)) {
            within<std::int64_t>("arm", arm, -1, static_cast<std::int64_t>(weights.size()) - 1);
            if (arm < 0 || known[arm]) continue;
            known[arm] = true;
            for (const std::int32_t feature : weights[arm].index)
                within<std::int64_t>("index of weights", feature, 0, weights.columns - 1);
        }
        found = means(contexts, weights, view(chosen), view(arms), threads);
    }
    return pack<Out2<double>>(std::move(found), n, k);
}

}  // namespace

void bind_fit(nb::module_& m) {
    m.def("build_hierarchy", &build_tree, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
          "columns"_a, "branching"_a, "max_leaf"_a, "cocluster"_a, "iterations"_a, "seed"_a, "threads"_a,
          "progress"_a = nb::none(), "parents and leaf_of of a balanced tree over arm vectors.");
    m.def("build_vector_tree", &build_dense_tree, "vectors"_a.noconvert(), "columns"_a, "branching"_a, "max_leaf"_a,
          "spherical"_a, "iterations"_a, "seed"_a, "threads"_a, "progress"_a = nb::none(),
          "parents and leaf_of of a tree over dense vectors, by k-means; no leaf has more than max_leaf.");
    m.def("fit", &fit_groups, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "columns"_a,
          "group_start"_a.noconvert(), "group_rows"_a.noconvert(), "target"_a.noconvert(), "loss"_a, "cost"_a,
          "tolerance"_a, "passes"_a, "exact_up_to"_a, "thresholds"_a, "seed"_a, "threads"_a, "progress"_a = nb::none(),
          "keep"_a.noconvert() = nb::none(), "known_start"_a.noconvert() = nb::none(),
          "known_index"_a.noconvert() = nb::none(), "known_value"_a.noconvert() = nb::none(),
          "Sparse weights on [x; 1], one row per group of samples; the known row where keep says so.");
    m.def("fit_held_out", &fit_held_out, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
          "columns"_a, "group_start"_a.noconvert(), "group_rows"_a.noconvert(), "target"_a.noconvert(),
          "fold"_a.noconvert(), "cost"_a, "tolerance"_a, "held_out_tolerance"_a, "passes"_a, "thresholds"_a, "seed"_a,
          "threads"_a, "keep"_a.noconvert() = nb::none(), "known"_a = nb::list(),
          "The squared hinge thrice: without the contexts of fold 0, without those of fold 1, and on all.");
    m.def("fingerprints", &print_groups, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
          "columns"_a, "group_start"_a.noconvert(), "group_rows"_a.noconvert(), "target"_a.noconvert(), "key"_a,
          "threads"_a, "64 bits per group that tell its samples, their order and `key` apart; 0 without samples.");
    m.def("fit_truth", &fit_sparse_truth, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
          "columns"_a, "column_start"_a.noconvert(), "column_index"_a.noconvert(), "column_value"_a.noconvert(),
          "arm_start"_a.noconvert(), "arm_index"_a.noconvert(), "arm_value"_a.noconvert(), "ridge"_a, "kept"_a,
          "threads"_a, "progress"_a = nb::none(),
          "Sparse weights on [x; 1], one row an arm: its ridge regression over all contexts, on `kept` features.");
    m.def("means", &sparse_means, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "columns"_a,
          "weight_start"_a.noconvert(), "weight_index"_a.noconvert(), "weight_value"_a.noconvert(),
          "rows"_a.noconvert(), "arms"_a.noconvert(), "threads"_a,
          "(rows, k): [x; 1] . w of k arms for each row of the contexts, NaN for arm -1.");
}

}  // namespace treetop

// Python's way to fits. An onlooker in Python sees how far they are and may stop them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fit.hpp"
#include "lanes.hpp"
#include "python.hpp"
#include "routes.hpp"
#include "truth.hpp"
#include "watched.hpp"

namespace treetop {

namespace {

using namespace nb::literals;

template <class T>
using Maybe = std::optional<In<T>>;

void check_solver(double cost, double tolerance, std::int64_t passes) {
    within("cost", cost, 1e-12, 1e12);
    within("tolerance", tolerance, 0.0, 1e12);
    within<std::int64_t>("passes", passes, 0, std::numeric_limits<std::int64_t>::max());
}

void check_thresholds(std::span<const float> thresholds, std::int64_t columns) {
    if (!thresholds.empty() && thresholds.size() != static_cast<std::size_t>(columns) + 1)
        throw std::invalid_argument(std::to_string(thresholds.size()) + " thresholds for " + std::to_string(columns) +
                                    " features and the bias");
    for (const float threshold : thresholds) within("threshold", threshold, 0.0f, std::numeric_limits<float>::max());
}

void check_known(const Known& known, std::size_t groups) {
    for (const Rows& rows : known.rows) {
        if (known.keep.size() != groups || rows.size() != groups)
            throw std::invalid_argument(std::to_string(known.keep.size()) + " marks and " +
                                        std::to_string(rows.size()) + " known rows for " + std::to_string(groups) +
                                        " groups");
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
                const Maybe<float>& known_value, std::int64_t first) {
    const Rows contexts = rows(start, index, value, columns);
    const Groups groups{view(group_start), view(group_rows), view(target), static_cast<std::uint64_t>(first)};
    Known known;
    known.rows.resize(keep ? 1 : 0);  // refused below unless all four are given
    if (keep && known_start && known_index && known_value)
        known = {marks(*keep), {rows(*known_start, *known_index, *known_value, columns + 1)}};
    Weights weights;
    Watch watch;
    watched(progress, watch, [&] {
        within("loss", loss, 0, 2);
        within<std::int64_t>("first", first, 0, std::numeric_limits<std::int32_t>::max());
        const Solver solver{static_cast<Loss>(loss), cost, tolerance, passes, exact_up_to};
        validate(contexts, "context");
        check_groups(groups, contexts.size());
        check_solver(cost, tolerance, passes);
        within<std::int64_t>("exact_up_to", exact_up_to, 0, 16384);  // the matrix has its square
        check_thresholds(view(thresholds), columns);
        check_known(known, groups.size());
        for (const float y : groups.target)
            if (solver.loss == Loss::squared_hinge && y != 1 && y != -1)
                throw std::invalid_argument("a target of the squared hinge is " + std::to_string(y) + ", not 1 or -1");
        weights =
            fit(contexts, groups, solver, view(thresholds), static_cast<std::uint64_t>(seed), known, threads, watch);
    });
    return pack_weights(std::move(weights));
}

using Packed = std::tuple<In<std::int64_t>, In<std::int32_t>, In<float>>;  // start, index, value

// Routing functions as Python has them: families of contexts, and what each function has (lanes.hpp).
using Functions = std::tuple<In<std::int64_t>, In<std::int32_t>, In<std::int32_t>, In<std::int64_t>, In<std::int32_t>,
                             In<std::int64_t>, In<std::int32_t>, In<float>>;

RoutingProblems routing_problems(const Functions& given) {
    const auto& [shared_start, shared_rows, family, right_start, right_rows, start, own_rows, target] = given;
    return {view(shared_start), view(shared_rows), view(family),
            view(right_start),  view(right_rows),  {view(start), view(own_rows), view(target)}};
}

auto fit_functions(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                   const Functions& functions, In<bool> fold, const std::tuple<double, double, double>& settings,
                   std::int64_t passes, In<float> thresholds, const Packed& unknown, int threads,
                   const Maybe<bool>& keep, const std::vector<Packed>& known_rows) {
    const Rows contexts = rows(start, index, value, columns);
    const RoutingProblems problems = routing_problems(functions);
    const auto [cost, tolerance, held_out_tolerance] = settings;
    const RoutingSolver solver{cost, tolerance, held_out_tolerance, passes};
    const auto unpacked = [&](const Packed& packed) {
        const auto& [s, i, v] = packed;
        return rows(s, i, v, columns + 1);
    };
    const Rows otherwise = unpacked(unknown);
    Known known;
    if (keep) {
        known.keep = marks(*keep);
        for (const Packed& each : known_rows) known.rows.push_back(unpacked(each));
    }
    std::array<Weights, routing_parts> weights;
    Watch watch;
    watched({}, watch, [&] {
        validate(contexts, "context");
        check_routing(problems, contexts.size());
        check_solver(cost, tolerance, passes);
        within("held_out_tolerance", held_out_tolerance, 0.0, 1e12);
        check_thresholds(view(thresholds), columns);
        check_known(known, problems.size());
        if (otherwise.size() != problems.size())
            throw std::invalid_argument(std::to_string(otherwise.size()) + " rows of what is unknown for " +
                                        std::to_string(problems.size()) + " routing functions");
        check_pointers(otherwise, "weights of what is unknown");
        if (fold.size() != contexts.size())
            throw std::invalid_argument(std::to_string(fold.size()) + " folds of " + std::to_string(contexts.size()) +
                                        " contexts");
        if (keep && known.rows.size() != routing_parts)
            throw std::invalid_argument("known rows of " + std::to_string(known.rows.size()) + " parts; there are " +
                                        std::to_string(routing_parts));
        weights =
            fit_routing(contexts, problems, marks(fold), solver, view(thresholds), otherwise, known, threads, watch);
    });
    return std::make_tuple(pack_weights(std::move(weights[0])), pack_weights(std::move(weights[1])),
                           pack_weights(std::move(weights[2])));
}

Out<std::int64_t> print_functions(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                                  const Functions& functions, std::int64_t key, int threads) {
    const Rows contexts = rows(start, index, value, columns);
    const RoutingProblems problems = routing_problems(functions);
    std::vector<std::int64_t> found;
    {
        const nb::gil_scoped_release release;
        validate(contexts, "context");
        check_routing(problems, contexts.size());
        found = routing_fingerprints(contexts, problems, static_cast<std::uint64_t>(key), threads);
    }
    return pack1(std::move(found));
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

Out<double> routes_of_pairs(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                            const Packed& weights, In<std::int32_t> parents, In<std::int32_t> leaf_of,
                            In<std::int64_t> chosen, In<std::int32_t> arms, double path_weight, int threads) {
    const Rows contexts = rows(start, index, value, columns);
    const auto& [s, i, v] = weights;
    const LinearRouting routing{rows(s, i, v, columns + 1), view(parents), view(leaf_of), path_weight};
    std::vector<double> found;
    {
        const nb::gil_scoped_release release;
        validate(contexts, "context");
        check_pointers(routing.weights, "routing");
        found = pair_routes(contexts, routing, view(chosen), view(arms), threads);
    }
    return pack1(std::move(found));
}

}  // namespace

void bind_fit(nb::module_& m) {
    m.def("fit", &fit_groups, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "columns"_a,
          "group_start"_a.noconvert(), "group_rows"_a.noconvert(), "target"_a.noconvert(), "loss"_a, "cost"_a,
          "tolerance"_a, "passes"_a, "exact_up_to"_a, "thresholds"_a, "seed"_a, "threads"_a, "progress"_a = nb::none(),
          "keep"_a.noconvert() = nb::none(), "known_start"_a.noconvert() = nb::none(),
          "known_index"_a.noconvert() = nb::none(), "known_value"_a.noconvert() = nb::none(), "first"_a = 0,
          "Sparse weights on [x; 1], one row per group of samples; the known row where keep says so. The groups have "
          "numbers from `first` on, which tell the order in which samples are visited.");
    m.def("fit_routing", &fit_functions, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
          "columns"_a, "functions"_a, "fold"_a.noconvert(), "settings"_a, "passes"_a, "thresholds"_a, "unknown"_a,
          "threads"_a, "keep"_a.noconvert() = nb::none(), "known"_a = nb::list(),
          "Routing functions thrice: without the contexts of fold 0, without those of fold 1, and on all. `settings` "
          "are the cost and the tolerances of the last fit and of the others.");
    m.def("routing_fingerprints", &print_functions, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
          "columns"_a, "functions"_a, "key"_a, "threads"_a,
          "64 bits per routing function, as `fingerprints` has them; 0 where nothing right is known.");
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
    m.def(
        "pair_routes", &routes_of_pairs, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
        "columns"_a, "weights"_a, "parents"_a.noconvert(), "leaf_of"_a.noconvert(), "rows"_a.noconvert(),
        "arms"_a.noconvert(), "path_weight"_a, "threads"_a,
        "Log routing scores of pairs of a row, which rise, and an arm, by linear functions of nodes and arms; the path "
        "to an arm with a function of its own counts `path_weight`.");
}

}  // namespace treetop

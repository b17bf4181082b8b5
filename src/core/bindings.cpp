// Python's way into the core: unpack, release the GIL, call the core, pack.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "python.hpp"
#include "synthesize.hpp"
#include "tree.hpp"

namespace nb = nanobind;
using namespace treetop;
using namespace nb::literals;

namespace {

constexpr std::int64_t max_int = std::numeric_limits<std::int32_t>::max();

auto bind_tree(In<std::int32_t> parents, In<std::int32_t> leaf_of) {
    Layout tree = make_layout(view(parents), view(leaf_of));
    return std::make_tuple(pack1(std::move(tree.begin)), pack1(std::move(tree.end)), pack1(std::move(tree.arm_at)),
                           pack1(std::move(tree.position_of)), tree.depth);
}

auto bind_synthesize(std::int64_t arms, std::int64_t features, std::int64_t topics, double nonzeros, double labels,
                     double zipf, double noise, std::int64_t seed, std::int64_t init, std::int64_t rows, int threads) {
    Synthetic made;
    {
        const nb::gil_scoped_release release;
        made = synthesize({arms, features, topics, nonzeros, labels, zipf, noise, static_cast<std::uint64_t>(seed)},
                          init, rows, threads);
    }
    return std::make_tuple(pack1(std::move(made.x_start)), pack1(std::move(made.x_index)),
                           pack1(std::move(made.x_value)), pack1(std::move(made.y_start)),
                           pack1(std::move(made.y_index)));
}

Out<std::int64_t> bind_row_keys(std::int64_t key, std::int64_t first, std::int64_t n) {
    within<std::int64_t>("n", n, 0, max_int);
    std::vector<std::int64_t> keys(static_cast<std::size_t>(n));
    auto row = static_cast<std::uint64_t>(first);
    for (std::int64_t& k : keys) k = static_cast<std::int64_t>(derive(static_cast<std::uint64_t>(key), row++));
    return pack1(std::move(keys));
}

}  // namespace

NB_MODULE(_core, m) {
#ifdef NDEBUG
    nb::set_leak_warnings(false);  // what Ctrl-C leaves alive in a traceback is no concern of whoever pressed it
#endif
    m.doc() = "The native core of treetop: plain arrays in, plain arrays out.";
    m.def("layout", &bind_tree, "parents"_a.noconvert(), "leaf_of"_a.noconvert(),
          "begin, end, arm_at, position_of, depth of a valid tree.");
    m.def("synthesize", &bind_synthesize, "arms"_a, "features"_a, "topics"_a, "nonzeros"_a, "labels"_a, "zipf"_a,
          "noise"_a, "seed"_a, "init"_a, "rows"_a, "threads"_a,
          "Made-up rows of contexts (start, index, value) and labels (start, index): `init` rows, then `rows` rows.");
    m.def("row_keys", &bind_row_keys, "key"_a, "first"_a, "n"_a, "One key per row of a seeded batch.");
    m.def(
        "uniform",
        [](std::int64_t key, std::int64_t slot) {
            return Stream(derive(static_cast<std::uint64_t>(key), static_cast<std::uint64_t>(slot))).uniform();
        },
        "key"_a, "slot"_a, "The number in [0, 1) that belongs to a slot.");
    m.def(
        "inspect_rows",
        [](In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
           const std::string& what) { return inspect(rows(start, index, value, columns), what); },
        "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "columns"_a, "what"_a,
        "Refuses pointers, indices and values out of range; says whether indices rise strictly in every row.");
    m.def(
        "keep_lock", [](bool keep) { keeps_lock = keep; }, "keep"_a,
        "Whether single decisions keep Python's lock; for processes in which one thread makes them.");
    bind_choose(m);
    bind_layout(m);
    bind_engine(m);
    bind_evaluation(m);
    bind_trees(m);
    bind_fit(m);
    bind_names(m);
    bind_probability(m);
    bind_read(m);
    bind_flat(m);
}

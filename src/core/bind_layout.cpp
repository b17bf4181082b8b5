// Parts of the serving layout, for Python: prepared masks, checksums, instruction sets.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "conditions.hpp"
#include "eligible.hpp"
#include "index.hpp"
#include "node_sums.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace treetop;
using namespace nb::literals;

namespace {

constexpr std::int64_t max_int = std::numeric_limits<std::int32_t>::max();

void make_mask(Mask* self, In<std::int32_t> begin, In<std::int32_t> end, In<std::int32_t> positions, std::int64_t arms,
               bool listed) {
    within<std::int64_t>("arms", arms, 1, max_int);
    if (begin.size() != end.size()) throw std::invalid_argument("begin and end must have one length");
    const auto check = [&](std::int32_t value, const char* what, std::int64_t high) {
        if (value < 0 || value > high)
            throw std::invalid_argument(std::string(what) + " " + std::to_string(value) + " is outside [0, " +
                                        std::to_string(high) + "]");
    };
    for (std::size_t node = 0; node < begin.size(); ++node) {
        check(end.data()[node], "end", arms);
        check(begin.data()[node], "begin", end.data()[node]);
    }
    for (std::size_t i = 0; i < positions.size(); ++i) {
        check(positions.data()[i], "position", arms - 1);
        if (i > 0 && positions.data()[i] <= positions.data()[i - 1])
            throw std::invalid_argument("positions must rise strictly: " + std::to_string(positions.data()[i]));
    }
    new (self) Mask(static_cast<std::size_t>(arms), view(begin), view(end), view(positions), listed);
}

void check_positions(std::span<const std::int32_t> positions, std::size_t arms) {
    for (const std::int32_t p : positions)
        if (p < 0 || static_cast<std::size_t>(p) >= arms)
            throw std::invalid_argument("position " + std::to_string(p) + " is outside [0, " + std::to_string(arms) +
                                        ")");
}

void make_sorted(SortedPositions* self, In<std::int32_t> order, In<std::int64_t> cuts, std::int64_t arms,
                 std::optional<In<double>> values) {
    within<std::int64_t>("arms", arms, 1, max_int);
    check_positions(view(order), static_cast<std::size_t>(arms));
    std::int64_t last = 0;
    for (const std::int64_t cut : view(cuts)) {
        within<std::int64_t>("cut", cut, last + 1, static_cast<std::int64_t>(order.size()));
        last = cut;
    }
    const std::span<const double> sorted = values ? view(*values) : std::span<const double>{};
    if (values && sorted.size() != order.size())
        throw std::invalid_argument(std::to_string(sorted.size()) + " values for " + std::to_string(order.size()) +
                                    " positions");
    if (!std::is_sorted(sorted.begin(), sorted.end())) throw std::invalid_argument("values must not fall");
    new (self) SortedPositions(static_cast<std::size_t>(arms), view(order), view(cuts), sorted);
}

std::size_t values_below(const SortedPositions& sorted, double value, bool up_to) {
    if (!sorted.has_values())
        throw std::invalid_argument("positions without values have none below " + std::to_string(value));
    return sorted.below(value, up_to);
}

Mask make_filtered(std::int64_t arms, std::int64_t nodes,
                   const std::vector<std::pair<const SortedPositions*, std::vector<std::int64_t>>>& conditions,
                   const Mask* base, std::optional<In<std::int32_t>> only, In<std::int32_t> banned) {
    within<std::int64_t>("arms", arms, 1, max_int);
    within<std::int64_t>("nodes", nodes, 1, max_int);
    const auto all = static_cast<std::size_t>(arms);
    std::vector<Condition> checked;
    for (const auto& [sorted, ranges] : conditions) {
        if (sorted->arms() != all || ranges.size() % 2 != 0)
            throw std::invalid_argument("a condition for " + std::to_string(sorted->arms()) + " arms with " +
                                        std::to_string(ranges.size()) + " ends of ranges; there are " +
                                        std::to_string(all) + " arms");
        std::int64_t last = 0;
        for (const std::int64_t end : ranges) {
            within<std::int64_t>("end of a range", end, last, static_cast<std::int64_t>(sorted->size()));
            last = end;
        }
        checked.emplace_back(*sorted, ranges);
    }
    if (base && base->arms() != all)
        throw std::invalid_argument("the mask is for " + std::to_string(base->arms()) + " arms, not " +
                                    std::to_string(all));
    const std::span<const std::int32_t> wanted = only ? view(*only) : std::span<const std::int32_t>{};
    check_positions(wanted, all);
    check_positions(view(banned), all);
    const BriefRelease released;
    return filtered(all, static_cast<std::size_t>(nodes), std::move(checked), base, only ? &wanted : nullptr,
                    view(banned));
}

Out2<double> sums_of_nodes(In<std::int32_t> parents, In<std::int32_t> begin, In<std::int32_t> end,
                           In<std::int32_t> arm_at, In<float> vectors, std::int64_t columns, int threads) {
    const std::size_t nodes = parents.size(), arms = arm_at.size();
    within<std::int64_t>("columns", columns, 1, 1 << 20);
    if (nodes == 0) throw std::invalid_argument("there are 0 nodes; a tree has at least 1");
    const auto d = static_cast<std::size_t>(columns);
    if (begin.size() != nodes || end.size() != nodes || vectors.size() != arms * d)
        throw std::invalid_argument(std::to_string(vectors.size()) + " numbers for " + std::to_string(arms) +
                                    " arms with vectors of " + std::to_string(d) + ", " + std::to_string(nodes) +
                                    " nodes with " + std::to_string(begin.size()) + " begins and " +
                                    std::to_string(end.size()) + " ends");
    check_positions(view(arm_at), arms);
    for (std::size_t node = 0; node < nodes; ++node) {
        if (node > 0) within("parent", parents.data()[node], 0, static_cast<std::int32_t>(node) - 1);
        within("end", end.data()[node], 0, static_cast<std::int32_t>(arms));
        within("begin", begin.data()[node], 0, end.data()[node]);
    }
    std::vector<double> sums;
    {
        const nb::gil_scoped_release release;
        sums = node_sums(view(parents), view(begin), view(end), view(arm_at), view(vectors), d, threads);
    }
    return pack<Out2<double>>(std::move(sums), nodes, d);
}

std::int32_t below(const Mask& mask, std::int32_t node, std::int32_t begin, std::int32_t end) {
    within("node", node, 0, static_cast<std::int32_t>(mask.nodes()) - 1);
    within("end", end, 0, static_cast<std::int32_t>(mask.arms()));
    within("begin", begin, 0, end);
    return mask.below(node, begin, end);
}

std::int32_t count(const Mask& mask, std::int32_t begin, std::int32_t end) {
    within("end", end, 0, static_cast<std::int32_t>(mask.arms()));
    within("begin", begin, 0, end);
    return mask.count(begin, end);
}

Out<std::int32_t> positions_of(const Mask& mask) {
    std::vector<std::int32_t> out;
    out.reserve(static_cast<std::size_t>(mask.total()));
    const Eligible all{Eligible::Kind::mask, {}, &mask};
    all.each(0, static_cast<std::int32_t>(mask.arms()), [&](std::int32_t p) { out.push_back(p); });
    return pack1(std::move(out));
}

}  // namespace

void treetop::bind_layout(nb::module_& m) {
    nb::class_<Mask>(m, "Mask", "A set of positions with counts per node, prepared once for many decisions.")
        .def("__init__", &make_mask, "begin"_a.noconvert(), "end"_a.noconvert(), "positions"_a.noconvert(), "arms"_a,
             "listed"_a)
        .def_static("filtered", &make_filtered, "arms"_a, "nodes"_a, "conditions"_a, "base"_a.none(),
                    "only"_a.noconvert().none(), "banned"_a.noconvert(), nb::keep_alive<0, 3>(), nb::keep_alive<0, 4>(),
                    "What meets every condition, for one decision: ranges in the order of attributes, of a mask, of "
                    "listed positions, without the banned ones.")
        .def("below", &below, "node"_a, "begin"_a, "end"_a,
             "How many eligible arms are below a node, which has the positions [begin, end).")
        .def("count", &count, "begin"_a, "end"_a, "How many eligible positions are in [begin, end).")
        .def("positions", &positions_of, "The eligible positions, ascending.")
        .def_prop_ro(
            "empty", [](const Mask& mask) { return !mask.any(0, static_cast<std::int32_t>(mask.arms())); },
            "Whether there is no eligible position.")
        .def_prop_ro("total", &Mask::total, "How many eligible positions there are.");
    nb::class_<SortedPositions>(m, "SortedPositions", "Positions in the order of an attribute's values.")
        .def("__init__", &make_sorted, "order"_a.noconvert(), "cuts"_a.noconvert(), "arms"_a,
             "values"_a.noconvert().none() = nb::none())
        .def("below", &values_below, "value"_a, "up_to"_a, "How many have a value below this one, or up to it.")
        .def("__len__", &SortedPositions::size);
    m.def("node_sums", &sums_of_nodes, "parents"_a.noconvert(), "begin"_a.noconvert(), "end"_a.noconvert(),
          "arm_at"_a.noconvert(), "vectors"_a.noconvert(), "columns"_a, "threads"_a,
          "(nodes, columns): the sums of the vectors of the arms below every node.");
    m.attr("LAYOUT_VERSION") = Header::current;
    m.def(
        "crc32",
        [](In<std::uint8_t> bytes, int threads) {
            const auto all = std::as_bytes(view(bytes));
            const nb::gil_scoped_release release;
            return crc32(all, threads);
        },
        "bytes"_a.noconvert(), "threads"_a, "The same number as zlib.crc32, on several threads.");
    m.def(
        "instruction_sets",
        [] {
            std::vector<std::string> names;
            for (const InstructionSet& set : instruction_sets()) names.emplace_back(set.name);
            return names;
        },
        "What this machine has for the kernels, the one in use last unless TREETOP_SIMD names another.");
}

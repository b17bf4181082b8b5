// Parts of the serving layout, for Python: prepared masks, checksums, instruction sets.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "eligible.hpp"
#include "index.hpp"
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

std::int32_t below(const Mask& mask, std::int32_t node) {
    within("node", node, 0, static_cast<std::int32_t>(mask.nodes()) - 1);
    return mask.below(node);
}

}  // namespace

void treetop::bind_layout(nb::module_& m) {
    nb::class_<Mask>(m, "Mask", "A set of positions with counts per node, prepared once for many decisions.")
        .def("__init__", &make_mask, "begin"_a.noconvert(), "end"_a.noconvert(), "positions"_a.noconvert(), "arms"_a,
             "listed"_a)
        .def("below", &below, "node"_a, "How many eligible arms are below a node.");
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

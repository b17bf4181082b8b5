// What logged rounds say of candidates, for Python.
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "control.hpp"
#include "python.hpp"

namespace treetop {
namespace {

void sized(const char* what, std::size_t size, std::size_t wanted) {
    if (size != wanted)
        throw std::invalid_argument(std::string(what) + " have " + std::to_string(size) + " entries, not " +
                                    std::to_string(wanted));
}

nb::tuple controlled_terms(In<double> weights, In<double> rewards, In<double> score, In<double> expected,
                           In<double> covered, In<double> largest, In<std::int32_t> slots, In<double> level,
                           In<double> slope, In<double> mean, bool whole, In<double> caps, double bound) {
    const std::size_t n = slots.size(), k = n ? weights.size() / n : 0, C = caps.size();
    sized("weights", weights.size(), n * k);
    for (const auto* each : {&rewards, &score, &expected, &covered, &largest}) sized("slots", each->size(), n * k);
    const std::size_t lines = level.size() == k ? k : n * k;
    for (const auto* each : {&level, &slope, &mean}) sized("lines", each->size(), lines);
    for (const std::int32_t m : view(slots))
        if (m < 0 || static_cast<std::size_t>(m) > k)
            throw std::invalid_argument("a round has " + std::to_string(m) + " slots of " + std::to_string(k));
    std::vector<double> values(C * n), complements(C * n);
    {
        const nb::gil_scoped_release release;
        const JudgedRounds rounds{
            n, k, view(weights), view(rewards), view(score), view(expected), view(covered), view(largest), view(slots)};
        const ControlLines by{view(level), view(slope), view(mean)};
        Controls controls(rounds, by, whole, bound);
        std::vector<double> value(C), complement(C);
        for (std::size_t i = 0; i < n; ++i) {
            controls(i, view(caps), value, complement);
            for (std::size_t c = 0; c < C; ++c) {
                values[c * n + i] = value[c];
                complements[c * n + i] = complement[c];
            }
        }
    }
    return nb::make_tuple(pack<Out2<double>>(std::move(values), C, n),
                          pack<Out2<double>>(std::move(complements), C, n));
}

Out2<double> count_values(In<double> values, std::int64_t kinds, In<double> edges) {
    if (kinds < 1 || values.size() % static_cast<std::size_t>(kinds) != 0)
        throw std::invalid_argument(std::to_string(values.size()) + " values of " + std::to_string(kinds) + " kinds");
    const auto m = static_cast<std::size_t>(kinds);
    const std::size_t n = values.size() / m, E = edges.size();
    std::vector<double> counts(m * E, 0.0);
    {
        const nb::gil_scoped_release release;
        const EdgeCounter counter(view(edges));
        for (std::size_t j = 0; j < m; ++j)
            for (const double value : view(values).subspan(j * n, n))
                counter.add(value, std::span(counts).subspan(j * E, E));
    }
    return pack<Out2<double>>(std::move(counts), m, E);
}

}  // namespace

#define FLOATS "NDArray[numpy.float64]"

void bind_evaluation(nb::module_& m) {
    using namespace nb::literals;
    m.def("controlled_terms", &controlled_terms, "weights"_a.noconvert(), "rewards"_a.noconvert(),
          "score"_a.noconvert(), "expected"_a.noconvert(), "covered"_a.noconvert(), "largest"_a.noconvert(),
          "slots"_a.noconvert(), "level"_a.noconvert(), "slope"_a.noconvert(), "mean"_a.noconvert(), "whole"_a,
          "caps"_a.noconvert(), "bound"_a,
          nb::sig("def controlled_terms(weights: " FLOATS ", rewards: " FLOATS ", score: " FLOATS ", expected: " FLOATS
                  ", covered: " FLOATS ", largest: " FLOATS ", slots: NDArray[numpy.int32], level: " FLOATS
                  ", slope: " FLOATS ", mean: " FLOATS ", whole: bool, caps: " FLOATS ", bound: float) -> tuple[" FLOATS
                  ", " FLOATS "]"),
          "What rounds say of the value and of its complement, less control variates: (caps, n) each.");
    m.def("count_values", &count_values, "values"_a.noconvert(), "kinds"_a, "edges"_a.noconvert(),
          nb::sig("def count_values(values: " FLOATS ", kinds: int, edges: " FLOATS ") -> " FLOATS),
          "How often each value came, shared out between the two edges around it: (kinds, edges).");
}

}  // namespace treetop

// The chances of given slots, for Python.
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine.hpp"
#include "probability.hpp"

namespace treetop {
namespace {

nb::list slot_probabilities(const Engine& engine, In<std::int64_t> start, In<std::int32_t> index, In<float> value,
                            In<std::int32_t> arms, std::int64_t width, std::int64_t k, std::int64_t beam, double beta,
                            const std::vector<std::tuple<std::int64_t, std::int32_t, Rate>>& ways,
                            std::int32_t eligible_kind, In<std::int32_t> positions, In<std::int64_t> position_start,
                            int threads, const Mask* mask, In<std::int32_t> groups) {
    const Model& model = engine.model();
    const Rows contexts = rows(start, index, value, model.columns - 1);
    const auto given = view(arms), cuts = view(groups);
    std::vector<Ask> asks;
    for (const auto& [explore, strategy, rate] : ways) {
        check_slots(k, explore);
        asks.push_back({k, explore, width_of(beam, beta), strategy_of(strategy, rate)});
    }
    if (asks.empty()) return {};
    within<std::int64_t>("slots", width, 1, k);
    const Allowed allowed{eligible_kind, view(positions), view(position_start), mask};
    const std::size_t n = contexts.size(), wide = static_cast<std::size_t>(width), A = model.tree.arms();
    if (given.size() != n * wide)
        throw std::invalid_argument(std::to_string(given.size()) + " arms for " + std::to_string(n) +
                                    " contexts with " + std::to_string(width) + " each");
    if (cuts.size() % A != 0)
        throw std::invalid_argument(std::to_string(cuts.size()) + " groups for " + std::to_string(A) + " arms");
    const std::size_t D = cuts.size() / A;
    std::vector<Chances> chances(asks.size(), Chances(n, wide, D));
    {
        const nb::gil_scoped_release release;
        engine.check(contexts, n, allowed);
        for (const std::int32_t arm : given) within<std::int64_t>("an arm", arm, -1, static_cast<std::int64_t>(A) - 1);
        for (const std::int32_t node : cuts)
            within<std::int64_t>("a group", node, 0, static_cast<std::int64_t>(model.tree.nodes()) - 1);
        std::vector<std::unique_ptr<Decider>> deciders(worker_count(threads, n));
        for (auto& decider : deciders) decider = engine.borrow();
        std::vector<Assessor> assessors(deciders.size(), Assessor(model));
        const auto order = reading_order(model, contexts, deciders, threads);
        parallel_for(n, threads, 16, [&](int worker, std::size_t o) {
            const std::size_t i = order[o];
            assessors[worker](*deciders[worker], contexts[i], asks, allowed[i], given.subspan(i * wide, wide), cuts, i,
                              chances);
        });
        for (auto& decider : deciders) engine.give_back(std::move(decider));
    }
    nb::list found;
    for (Chances& each : chances)
        found.append(nb::make_tuple(pack<Out2<double>>(std::move(each.probability), n, wide),
                                    pack<Out2<std::int32_t>>(std::move(each.nodes), n, wide),
                                    pack<Out2<double>>(std::move(each.score), n, wide),
                                    pack<Out2<double>>(std::move(each.expected), n, wide),
                                    pack<Out3<double>>(std::move(each.grouped), n, wide, D)));
    return found;
}

}  // namespace

void bind_probability(nb::module_& m) {
    using namespace nb::literals;
    m.def("slot_probabilities", &slot_probabilities, "engine"_a, "start"_a.noconvert(), "index"_a.noconvert(),
          "value"_a.noconvert(), "arms"_a.noconvert(), "width"_a, "k"_a, "beam"_a, "beta"_a, "ways"_a,
          "eligible_kind"_a, "positions"_a.noconvert(), "position_start"_a.noconvert(), "threads"_a, "mask"_a.none(),
          "groups"_a.noconvert(),
          nb::sig("def slot_probabilities(engine: Engine, start: NDArray[numpy.int64], index: NDArray[numpy.int32], "
                  "value: NDArray[numpy.float32], arms: NDArray[numpy.int32], width: int, k: int, beam: int, "
                  "beta: float, ways: Sequence[tuple[int, int, float | Sequence[float]]], eligible_kind: int, "
                  "positions: NDArray[numpy.int32], position_start: NDArray[numpy.int64], threads: int, "
                  "mask: Mask | None, groups: NDArray[numpy.int32]) -> list[tuple[NDArray[numpy.float64], "
                  "NDArray[numpy.int32], NDArray[numpy.float64], NDArray[numpy.float64], NDArray[numpy.float64]]]"),
          "The chances of given slots for ways to explore (explore, strategy, rate) what one search finds: of each way "
          "(n, width) probabilities, nodes, scores, mean scores; (n, width, D) chances of the group of each arm.");
}

}  // namespace treetop

// The chances of given slots, for Python.
#include <algorithm>
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

using Asked = std::tuple<std::int64_t, std::int64_t, std::int64_t, double, std::int32_t, Rate, double>;

Ask ask_of(const Asked& asked) {
    const auto& [k, explore, beam, beta, strategy, rate, diversity] = asked;
    check_slots(k, explore);
    return {k, explore, width_of(beam, beta), strategy_of(strategy, rate), diversity};
}

// Deciders and assessors of one model, one of each for every thread.
struct Crew {
    const Engine& engine;
    std::vector<std::unique_ptr<Decider>> deciders;
    std::vector<Assessor> assessors;

    Crew(const Engine& engine_, std::size_t threads)
        : engine(engine_), deciders(threads), assessors(threads, Assessor(engine_.model())) {
        for (auto& decider : deciders) decider = engine.borrow();
    }
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    ~Crew() {
        for (auto& decider : deciders) engine.give_back(std::move(decider));
    }
};

nb::list slot_probabilities(const Engine& engine, In<std::int64_t> start, In<std::int32_t> index, In<float> value,
                            In<std::int32_t> arms, std::int64_t width, const std::vector<Asked>& asked,
                            std::int32_t eligible_kind, In<std::int32_t> positions, In<std::int64_t> position_start,
                            int threads, const Mask* mask, In<std::int32_t> groups, const Engine* served,
                            const std::vector<Asked>& served_asked) {
    const Model& model = engine.model();
    const Rows contexts = rows(start, index, value, model.columns - 1);
    const auto given = view(arms), cuts = view(groups);
    if (asked.empty()) return {};
    std::vector<Ask> asks;
    for (const Asked& each : asked) asks.push_back(ask_of(each));
    within<std::int64_t>("slots", width, 1, std::ranges::max(asks, {}, &Ask::k).k);
    const Allowed allowed{eligible_kind, view(positions), view(position_start), mask};
    const std::size_t n = contexts.size(), wide = static_cast<std::size_t>(width), A = model.tree.arms();
    if (given.size() != n * wide)
        throw std::invalid_argument(std::to_string(given.size()) + " arms for " + std::to_string(n) +
                                    " contexts with " + std::to_string(width) + " each");
    if (cuts.size() % A != 0)
        throw std::invalid_argument(std::to_string(cuts.size()) + " groups for " + std::to_string(A) + " arms");
    const bool beside = served && !served_asked.empty();
    if (beside && (served->model().tree.arms() != A || served->model().tree.nodes() != model.tree.nodes() ||
                   served->model().columns != model.columns))
        throw std::invalid_argument("the model that served has another tree or other features");
    const Ask own = beside ? ask_of(served_asked[0]) : Ask{};
    const std::size_t D = cuts.size() / A;
    std::vector<Chances> chances(asks.size(), Chances(n, wide, D, beside));
    {
        const nb::gil_scoped_release release;
        engine.check(contexts, n, allowed);
        for (const std::int32_t arm : given) within<std::int64_t>("an arm", arm, -1, static_cast<std::int64_t>(A) - 1);
        for (const std::int32_t node : cuts)
            within<std::int64_t>("a group", node, 0, static_cast<std::int64_t>(model.tree.nodes()) - 1);
        const std::size_t workers = worker_count(threads, n);
        const bool noted = beside && served == &engine && Assessor::alike(own, asks[0]);
        const bool own_first = noted && served_asked[0] == asked[0];
        Crew crew(engine, workers), serving(beside ? *served : engine, beside && !noted ? workers : 0);
        Crew& noting = noted ? crew : serving;
        std::vector<Shown> shown(workers);
        const auto order = reading_order(model, contexts, crew.deciders, threads);
        parallel_for(n, threads, 16, [&](int worker, std::size_t o) {
            const std::size_t i = order[o];
            const auto mine = given.subspan(i * wide, wide);
            if (beside)
                noting.assessors[worker].note(*noting.deciders[worker], contexts[i], own, allowed[i], mine, cuts, i,
                                              shown[worker], own_first ? &chances[0] : nullptr);
            crew.assessors[worker](*crew.deciders[worker], contexts[i], asks, allowed[i], mine, cuts, i,
                                   beside ? &shown[worker] : nullptr, noted, own_first ? 1 : 0, chances);
        });
    }
    nb::list found;
    for (Chances& each : chances)
        found.append(nb::make_tuple(pack<Out2<double>>(std::move(each.probability), n, wide),
                                    pack<Out2<std::int32_t>>(std::move(each.nodes), n, wide),
                                    pack<Out2<double>>(std::move(each.score), n, wide),
                                    pack<Out2<double>>(std::move(each.expected), n, wide),
                                    pack<Out3<double>>(std::move(each.grouped), n, wide, D),
                                    pack<Out2<double>>(std::move(each.covered), n, wide),
                                    pack<Out2<double>>(std::move(each.largest), n, wide)));
    return found;
}

}  // namespace

#define ASKED "tuple[int, int, int, float, int, float | Sequence[float] | tuple[Sequence[float], TrialCounts], float]"

void bind_probability(nb::module_& m) {
    using namespace nb::literals;
    m.def("slot_probabilities", &slot_probabilities, "engine"_a, "start"_a.noconvert(), "index"_a.noconvert(),
          "value"_a.noconvert(), "arms"_a.noconvert(), "width"_a, "asked"_a, "eligible_kind"_a,
          "positions"_a.noconvert(), "position_start"_a.noconvert(), "threads"_a, "mask"_a.none(),
          "groups"_a.noconvert(), "served"_a.none(), "served_asked"_a,
          nb::sig("def slot_probabilities(engine: Engine, start: NDArray[numpy.int64], index: NDArray[numpy.int32], "
                  "value: NDArray[numpy.float32], arms: NDArray[numpy.int32], width: int, "
                  "asked: Sequence[" ASKED "], eligible_kind: int, positions: NDArray[numpy.int32], "
                  "position_start: NDArray[numpy.int64], threads: int, mask: Mask | None, "
                  "groups: NDArray[numpy.int32], served: Engine | None, "
                  "served_asked: Sequence[" ASKED "]) -> list[tuple[NDArray[numpy.float64], "
                  "NDArray[numpy.int32], NDArray[numpy.float64], NDArray[numpy.float64], NDArray[numpy.float64], "
                  "NDArray[numpy.float64], NDArray[numpy.float64]]]"),
          "The chances of given slots for policies (k, explore, beam, beta, strategy, rate, diversity): of each (n, "
          "width) "
          "probabilities, nodes, scores, mean scores, (n, width, D) chances of the group of each arm, and beside the "
          "policy that served the chance of what it may show, and the largest ratio of chances.");
}

}  // namespace treetop

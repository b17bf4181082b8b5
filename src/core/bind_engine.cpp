// Deciding, for Python.
#include <memory>
#include <stdexcept>
#include <utility>

#include "ahead.hpp"
#include "engine.hpp"

namespace nb = nanobind;
using namespace treetop;
using namespace nb::literals;

namespace {

// A single decision that another thread may have begun. Keeps alive what that thread reads.
class Begun {
public:
    Begun(Ahead& ahead, const Engine& engine, const Mask* mask, std::unique_ptr<One> one)
        : kept_(
              nb::make_tuple(nb::find(ahead), nb::find(engine), mask ? nb::find(*mask) : nb::none(),
                             one->ask.strategy.budget.shown ? nb::find(*one->ask.strategy.budget.shown) : nb::none())),
          ahead_(ahead),
          engine_(engine),
          one_(std::move(one)),
          task_(ahead.begin([&engine, decision = one_.get()] { engine.run(*decision); })) {}
    Begun(const Begun&) = delete;
    Begun& operator=(const Begun&) = delete;
    ~Begun() {
        if (one_ && !ahead_.claim(task_)) ahead_.wait(task_);
    }

    nb::object take() {
        const auto one = std::move(one_);
        if (!one) throw std::invalid_argument("this decision was taken already");
        if (!at_once(*one)) {
            const nb::gil_scoped_release release;
            ahead_.wait(task_);
        }
        ahead_.rethrow(task_);
        return one->packed();
    }

private:
    // Whether there is nothing to wait for: it was not begun and is made here, or it is done.
    bool at_once(const One& one) {
        const BriefRelease release;
        if (!ahead_.claim(task_)) return ahead_.done_or_helped(task_);
        engine_.run(one);
        return true;
    }

    nb::object kept_;
    Ahead& ahead_;
    const Engine& engine_;
    std::unique_ptr<One> one_;
    Ahead::Handle task_;
};

// One decision, for a context that is right as it is; None for any other.
nb::object decide_one(const Engine& engine, nb::handle start, nb::handle index, nb::handle value, std::int64_t columns,
                      std::int64_t key, std::int64_t k, std::int64_t explore, std::int64_t beam, double beta,
                      std::int32_t strategy, const Rate& rate, const Mask* mask, double diversity) {
    One one(key, k, explore, beam, beta, strategy, rate, mask, diversity);
    if (!engine.prepare(one, start, index, value, columns)) return nb::none();
    {
        const BriefRelease release;
        engine.run(one);
    }
    return one.packed();
}

// The same, begun by another thread.
nb::object begin_one(const Engine& engine, Ahead& ahead, nb::handle start, nb::handle index, nb::handle value,
                     std::int64_t columns, std::int64_t key, std::int64_t k, std::int64_t explore, std::int64_t beam,
                     double beta, std::int32_t strategy, const Rate& rate, const Mask* mask, double diversity) {
    auto one = std::make_unique<One>(key, k, explore, beam, beta, strategy, rate, mask, diversity);
    if (!engine.prepare(*one, start, index, value, columns)) return nb::none();
    return nb::cast(new Begun(ahead, engine, mask, std::move(one)), nb::rv_policy::take_ownership);
}

}  // namespace

#define RATE "float | Sequence[float] | tuple[Sequence[float], TrialCounts]"
#define ONE                                                                                              \
    "tuple[NDArray[numpy.int32], NDArray[numpy.float64], NDArray[numpy.float32], NDArray[numpy.bool_], " \
    "NDArray[numpy.int32], NDArray[numpy.float32]]"

void treetop::bind_engine(nb::module_& m) {
    nb::class_<TrialCounts>(m, "TrialCounts", "How often arms were shown by now, where a model's counts are older.")
        .def(
            "__init__",
            [](TrialCounts* self, In<std::int32_t> arms, In<std::int32_t> counts) {
                new (self) TrialCounts(view(arms), view(counts));
            },
            "arms"_a.noconvert(), "counts"_a.noconvert())
        .def("__len__", &TrialCounts::size);
    nb::class_<Ahead>(m, "Ahead", "A thread that works ahead of whoever waits for results.").def(nb::init<>());
    nb::class_<Begun>(m, "Begun", "A decision that may have been begun by another thread.")
        .def("take", &Begun::take, nb::sig("def take(self) -> " ONE), "As `decide_one` gives it; once.");
    nb::class_<Engine>(m, "Engine")
        .def(nb::init<In<std::int32_t>, In<std::int32_t>, In<std::int64_t>, In<std::int32_t>, In<float>,
                      In<std::int64_t>, In<std::int32_t>, In<float>, std::int64_t, bool, int, const std::string&>(),
             "parents"_a.noconvert(), "leaf_of"_a.noconvert(), "route_start"_a.noconvert(), "route_index"_a.noconvert(),
             "route_value"_a.noconvert(), "reward_start"_a.noconvert(), "reward_index"_a.noconvert(),
             "reward_value"_a.noconvert(), "columns"_a, "geometric"_a, "threads"_a, "file"_a = "",
             "With `file`, a new one, the layout is made there instead of in memory.")
        .def(nb::init<In<std::int32_t>, In<std::int32_t>, In<std::int64_t>, In<std::int32_t>, In<float>, std::int64_t,
                      bool, In<std::uint8_t>>(),
             "parents"_a.noconvert(), "leaf_of"_a.noconvert(), "route_start"_a.noconvert(), "route_index"_a.noconvert(),
             "route_value"_a.noconvert(), "columns"_a, "geometric"_a, "layout"_a.noconvert())
        .def(
            "layout",
            [](nb::pointer_and_handle<Engine> self) {
                const auto bytes = self.p->layout();
                return Out<const std::uint8_t>(bytes.data(), {bytes.size()}, self.h);
            },
            "The serving layout as it is written to a file; memory of the engine.")
        .def("set_pooled", &Engine::set_pooled, "means"_a.noconvert(), "node_mean"_a, "sample_count"_a.noconvert(),
             "trial_value"_a.noconvert(), "new_trials"_a.noconvert(), "exploration_net"_a, "weights"_a,
             "What scores start from; to be called before the engine is shared.")
        .def("set_path_weight", &Engine::set_path_weight, "weight"_a,
             "How much the path counts in routes of arms; to be called before the engine is shared.")
        .def("set_measure", &Engine::set_measure, "kind"_a, "first"_a, "dims"_a, "scale"_a, "routes"_a,
             "vectors"_a.noconvert(), "means"_a.noconvert(), "range"_a, "context_dims"_a, "map"_a.noconvert(),
             "How contexts and items are compared; to be called before the engine is shared.")
        .def("set_coverage", &Engine::set_coverage, "start"_a.noconvert(), "group"_a.noconvert(), "share"_a.noconvert(),
             "groups"_a, "saturation"_a = 0.0,
             "Which groups each arm covers; to be called before the engine is shared.")
        .def_prop_ro("n_components", &Engine::n_components,
                     "How many terms a score is the sum of; 0 where the model gives none.")
        .def("routes", &Engine::routes, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
             "arms"_a.noconvert(), "k"_a, "threads"_a, "Log routing scores of given arms.")
        .def("decide", &Engine::decide, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
             "keys"_a.noconvert(), "k"_a, "explore"_a, "beam"_a, "beta"_a, "strategy"_a, "rate"_a, "eligible_kind"_a,
             "positions"_a.noconvert(), "position_start"_a.noconvert(), "threads"_a, "mask"_a = nb::none(),
             "diversity"_a = 0.0,
             "Decisions for rows of contexts: arms, propensities, scores, explored, nodes, components.")
        .def("decide_one", &decide_one, "start"_a, "index"_a, "value"_a, "columns"_a, "key"_a, "k"_a, "explore"_a,
             "beam"_a, "beta"_a, "strategy"_a, "rate"_a, "mask"_a = nb::none(), "diversity"_a = 0.0,
             nb::sig("def decide_one(self, start: object, index: object, value: object, columns: int, key: int, "
                     "k: int, explore: int, beam: int, beta: float, strategy: int, rate: " RATE ", "
                     "mask: Mask | None = None, diversity: float = 0.0) -> " ONE " | None"),
             "One decision for a context that is right as it is: arms, propensities, scores, explored, nodes, "
             "components; else None.")
        .def("begin_one", &begin_one, "ahead"_a, "start"_a, "index"_a, "value"_a, "columns"_a, "key"_a, "k"_a,
             "explore"_a, "beam"_a, "beta"_a, "strategy"_a, "rate"_a, "mask"_a = nb::none(), "diversity"_a = 0.0,
             nb::sig("def begin_one(self, ahead: Ahead, start: object, index: object, value: object, columns: int, "
                     "key: int, k: int, explore: int, beam: int, beta: float, strategy: int, rate: " RATE ", "
                     "mask: Mask | None = None, diversity: float = 0.0) -> Begun | None"),
             "`decide_one` begun by another thread.")
        .def("search", &Engine::search, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "wanted"_a,
             "beam"_a, "beta"_a, "eligible_kind"_a, "positions"_a.noconvert(), "mask"_a = nb::none(), "threads"_a = 1,
             "new_arm_trials"_a = 0.0, "trial_counts"_a = nb::none(),
             "Effective arms of contexts: where each row begins; is_node, id, log route, score, exploration value, "
             "components, new share, prior.")
        .def("new_arm_spending", &Engine::new_arm_spending,
             "What the decisions so far were expected to bring, those of them that lead to new arms, what draws of new "
             "arms were charged, what they cost by the scores, and the second times the part that their slots spend of "
             "what they may.")
        .def("lines", &Engine::lines, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "wanted"_a,
             "beam"_a, "The numbers of the layout's cache lines that a beam search for one context reads, each once.")
        .def("touch", &Engine::touch, "numbers"_a.noconvert(),
             "Reads a word of these lines and nothing else: seconds, sum.")
        .def("stages", &Engine::stages, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "key"_a,
             "k"_a, "explore"_a, "beam"_a, "strategy"_a, "rate"_a,
             "Seconds of one decision: down the tree, the arms of the leaves, the choice.")
        .def("arm_below", &Engine::arm_below, "node"_a, "key"_a, "slot"_a, "eligible_kind"_a, "positions"_a.noconvert(),
             "mask"_a = nb::none(), "A uniform eligible arm below a node, and how many there are.");
}

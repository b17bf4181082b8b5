// Python's way into the core: unpack, release the GIL, call the core, pack.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "cluster.hpp"
#include "decide.hpp"
#include "fit.hpp"
#include "python.hpp"
#include "synthesize.hpp"

namespace nb = nanobind;
using namespace treetop;
using namespace nb::literals;

namespace {

constexpr std::int64_t max_slots = 65536, max_int = std::numeric_limits<std::int32_t>::max();

Strategy strategy_of(std::int32_t kind, double rate) {
    within("strategy", kind, 0, 3);
    const Strategy strategy{static_cast<Kind>(kind), rate};
    within("rate", rate, 0.0, strategy.kind == Kind::epsilon ? 1.0 : 1e300);
    return strategy;
}

Width width_of(std::int64_t beam, double beta) {
    within<std::int64_t>("beam", beam, 1, max_int);
    within("beta", beta, -1.0, 1.0);
    return {beam, beta};
}

void check_slots(std::int64_t k, std::int64_t explore) {
    within<std::int64_t>("k", k, 1, max_slots);
    within<std::int64_t>("explore", explore, 0, k);
}

Rows rows(const In<std::int64_t>& start, const In<std::int32_t>& index, const In<float>& value, std::int64_t columns) {
    return {view(start), view(index), view(value), columns};
}

// vector<bool> has no storage to hand over: bytes go out under the type bool.
template <class Array, class... Sizes>
Array pack_bool(std::vector<std::uint8_t>&& data, Sizes... sizes) {
    auto* kept = new std::vector<std::uint8_t>(std::move(data));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<std::uint8_t>*>(p); });
    return Array(reinterpret_cast<bool*>(kept->data()), {static_cast<std::size_t>(sizes)...}, owner);
}

// A model ready to decide. Read-only after construction, so that any number of threads may call it at once; each call
// borrows scratch space from a pool.
class Engine {
public:
    Engine(In<std::int32_t> parents, In<std::int32_t> leaf_of, In<std::int64_t> route_start,
           In<std::int32_t> route_index, In<float> route_value, In<std::int64_t> reward_start,
           In<std::int32_t> reward_index, In<float> reward_value, std::int64_t columns, bool geometric, int threads) {
        const Rows routing = rows(route_start, route_index, route_value, columns);
        const Rows rewards = rows(reward_start, reward_index, reward_value, columns);
        const auto up = view(parents), leaves = view(leaf_of);
        const nb::gil_scoped_release release;
        model_ = make_model(up, leaves, routing, rewards, geometric, threads);
    }

    auto decide(In<std::int64_t> start, In<std::int32_t> index, In<float> value, In<std::int64_t> keys, std::int64_t k,
                std::int64_t explore, std::int64_t beam, double beta, std::int32_t strategy, double rate,
                std::int32_t eligible_kind, In<std::int32_t> positions, In<std::int64_t> position_start,
                int threads) const {
        const Rows contexts = rows(start, index, value, model_.columns - 1);
        const auto key = view(keys);
        check_slots(k, explore);
        const Ask ask{k, explore, width_of(beam, beta), strategy_of(strategy, rate)};
        const auto listed = view(positions);
        const auto listed_start = view(position_start);
        const std::size_t n = contexts.size();
        Slots slots(n, static_cast<std::size_t>(k));
        {
            const nb::gil_scoped_release release;
            check(contexts, key.size(), eligible_kind, listed, listed_start);
            const auto decide_one = [&](Decider& decider, std::size_t i) {
                decider.decide(contexts[i], ask, eligible(i, eligible_kind, listed, listed_start),
                               static_cast<std::uint64_t>(key[i]), i, slots);
            };
            std::vector<std::unique_ptr<Decider>> deciders(worker_count(threads, n));
            for (auto& decider : deciders) decider = borrow();
            parallel_for(n, threads, 16, [&](int worker, std::size_t i) { decide_one(*deciders[worker], i); });
            for (auto& decider : deciders) give_back(std::move(decider));
        }
        return std::make_tuple(pack<Out2<std::int32_t>>(std::move(slots.arms), n, k),
                               pack<Out2<std::int32_t>>(std::move(slots.nodes), n, k),
                               pack<Out2<double>>(std::move(slots.propensities), n, k),
                               pack<Out2<float>>(std::move(slots.scores), n, k),
                               pack_bool<Out2<bool>>(std::move(slots.explored), n, k));
    }

    auto search(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t wanted, std::int64_t beam,
                double beta, std::int32_t eligible_kind, In<std::int32_t> positions) const {
        const Rows contexts = rows(start, index, value, model_.columns - 1);
        const auto listed = view(positions);
        const Width width = width_of(beam, beta);
        within<std::int64_t>("wanted", wanted, 0, max_int);
        std::vector<std::uint8_t> is_node;
        std::vector<std::int32_t> id;
        std::vector<double> route;
        std::vector<float> score;
        {
            const nb::gil_scoped_release release;
            check(contexts, 1, eligible_kind, listed, {});
            auto decider = borrow();
            for (const Candidate& c : decider->search(contexts[0], width, static_cast<std::size_t>(wanted),
                                                      eligible(0, eligible_kind, listed, {}))) {
                is_node.push_back(c.node);
                id.push_back(c.id);
                route.push_back(c.route);
                score.push_back(c.score);
            }
            give_back(std::move(decider));
        }
        const std::size_t n = id.size();
        return std::make_tuple(pack_bool<Out<bool>>(std::move(is_node), n), pack1(std::move(id)),
                               pack1(std::move(route)), pack1(std::move(score)));
    }

    // A uniform eligible arm below `node`, and how many there are.
    std::tuple<std::int32_t, std::int32_t> arm_below(std::int32_t node, std::int64_t key, std::int64_t slot,
                                                     std::int32_t eligible_kind, In<std::int32_t> positions) const {
        const auto listed = view(positions);
        check_node(node);
        within("eligible_kind", eligible_kind, 0, 2);
        check_list(listed);
        const Eligible allowed = eligible(0, eligible_kind, listed, {});
        const std::int32_t below = allowed.count(model_.tree.begin[node], model_.tree.end[node]);
        if (below == 0) throw std::invalid_argument("no eligible arm below node " + std::to_string(node));
        auto decider = borrow();
        const std::int32_t arm = decider->arm_below(
            node, allowed, derive(static_cast<std::uint64_t>(key), ~static_cast<std::uint64_t>(slot)));
        give_back(std::move(decider));
        return {arm, below};
    }

private:
    static Eligible eligible(std::size_t i, std::int32_t kind, std::span<const std::int32_t> listed,
                             std::span<const std::int64_t> start) {
        if (kind == 0) return {};  // the lists are then neither looked at nor checked
        if (!start.empty()) listed = listed.subspan(start[i], start[i + 1] - start[i]);
        return {static_cast<Eligible::Kind>(kind), listed};
    }

    void check_node(std::int32_t node) const {
        if (node < 0 || node >= static_cast<std::int32_t>(model_.tree.nodes()))
            throw std::invalid_argument("node " + std::to_string(node) + " is outside [0, " +
                                        std::to_string(model_.tree.nodes()) + ")");
    }

    void check_list(std::span<const std::int32_t> listed) const {
        const auto arms = static_cast<std::int32_t>(model_.tree.arms());
        for (std::size_t i = 0; i < listed.size(); ++i) {
            if (listed[i] < 0 || listed[i] >= arms)
                throw std::invalid_argument("position " + std::to_string(listed[i]) + " is outside [0, " +
                                            std::to_string(arms) + ")");
            if (i > 0 && listed[i] <= listed[i - 1])
                throw std::invalid_argument("positions must rise strictly: " + std::to_string(listed[i]) + " after " +
                                            std::to_string(listed[i - 1]));
        }
    }

    void check(const Rows& contexts, std::size_t keys, std::int32_t kind, std::span<const std::int32_t> listed,
               std::span<const std::int64_t> start) const {
        if (contexts.size() != keys)
            throw std::invalid_argument(std::to_string(contexts.size()) + " contexts, but " + std::to_string(keys) +
                                        " keys");
        validate(contexts, "context");
        within("eligible_kind", kind, 0, 2);
        if (kind == 0) return;
        if (!start.empty() && (start.size() != keys + 1 || start.front() != 0 ||
                               start.back() != static_cast<std::int64_t>(listed.size())))
            throw std::invalid_argument("eligible lists do not fit " + std::to_string(keys) + " contexts");
        const std::size_t lists = start.empty() ? 1 : keys;
        for (std::size_t i = 0; i < lists; ++i) {
            if (!start.empty() && (start[i + 1] < start[i] || start[i + 1] > start.back()))
                throw std::invalid_argument("eligible lists do not fit: row " + std::to_string(i));
            const Eligible allowed = eligible(i, kind, listed, start);
            check_list(allowed.positions);
            if (allowed.count(0, static_cast<std::int32_t>(model_.tree.arms())) == 0)
                throw std::invalid_argument("row " + std::to_string(i) + ": none of the " +
                                            std::to_string(model_.tree.arms()) + " arms is eligible");
        }
    }

    std::unique_ptr<Decider> borrow() const {
        const std::lock_guard<std::mutex> lock(guard_);
        if (idle_.empty()) return std::make_unique<Decider>(model_);
        auto decider = std::move(idle_.back());
        idle_.pop_back();
        return decider;
    }

    void give_back(std::unique_ptr<Decider> decider) const {
        const std::lock_guard<std::mutex> lock(guard_);
        idle_.push_back(std::move(decider));
    }

    Model model_;
    mutable std::mutex guard_;
    mutable std::vector<std::unique_ptr<Decider>> idle_;
};

auto bind_layout(In<std::int32_t> parents, In<std::int32_t> leaf_of) {
    Layout tree = make_layout(view(parents), view(leaf_of));
    return std::make_tuple(pack1(std::move(tree.begin)), pack1(std::move(tree.end)), pack1(std::move(tree.arm_at)),
                           pack1(std::move(tree.position_of)), tree.depth);
}

auto bind_hierarchy(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
                    std::int64_t branching, std::int64_t max_leaf, bool cocluster, int iterations, std::int64_t seed,
                    int threads) {
    const Rows vectors = rows(start, index, value, columns);
    Hierarchy tree;
    {
        const nb::gil_scoped_release release;
        validate(vectors, "arm vectors");
        within<std::int64_t>("branching", branching, 2, std::max<std::int64_t>(vectors.size(), 65536));
        within<std::int64_t>("max_leaf", max_leaf, 1, std::numeric_limits<std::int64_t>::max());
        within("iterations", iterations, 1, 10000);
        for (const float v : vectors.value)
            if (cocluster) within("a value to co-cluster", v, 0.0f, std::numeric_limits<float>::max());
        tree = build_hierarchy(vectors,
                               {branching, max_leaf, cocluster, iterations, static_cast<std::uint64_t>(seed), threads});
    }
    return std::make_tuple(pack1(std::move(tree.parents)), pack1(std::move(tree.leaf_of)));
}

auto bind_fit(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns,
              In<std::int64_t> group_start, In<std::int32_t> group_rows, In<float> target, std::int32_t loss,
              double cost, double tolerance, std::int64_t passes, std::int64_t exact_up_to, double threshold,
              std::int64_t seed, int threads) {
    const Rows contexts = rows(start, index, value, columns);
    const Groups groups{view(group_start), view(group_rows), view(target)};
    Weights weights;
    {
        const nb::gil_scoped_release release;
        validate(contexts, "context");
        check_groups(groups, contexts.size());
        within("loss", loss, 0, 2);
        within("cost", cost, 1e-12, 1e12);
        within("tolerance", tolerance, 0.0, 1e12);
        within<std::int64_t>("passes", passes, 0, std::numeric_limits<std::int64_t>::max());
        within<std::int64_t>("exact_up_to", exact_up_to, 0, 16384);  // the matrix has its square
        within("threshold", threshold, 0.0, std::numeric_limits<double>::max());
        for (const float y : groups.target)
            if (static_cast<Loss>(loss) == Loss::squared_hinge && y != 1 && y != -1)
                throw std::invalid_argument("a target of the squared hinge is " + std::to_string(y) + ", not 1 or -1");
        weights = fit(contexts, groups, {static_cast<Loss>(loss), cost, tolerance, passes, exact_up_to}, threshold,
                      static_cast<std::uint64_t>(seed), threads);
    }
    return std::make_tuple(pack1(std::move(weights.start)), pack1(std::move(weights.index)),
                           pack1(std::move(weights.value)));
}

auto bind_choose(In<float> scores, In<bool> is_node, In<std::int32_t> id, std::int64_t k, std::int64_t explore,
                 std::int32_t strategy, double rate, std::int64_t key) {
    if (is_node.size() != scores.size() || id.size() != scores.size())
        throw std::invalid_argument("scores, is_node and id must have one length");
    check_slots(k, explore);
    const Strategy how = strategy_of(strategy, rate);
    const auto* node = reinterpret_cast<const std::uint8_t*>(is_node.data());  // bytes may be other than 0 and 1
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < scores.size(); ++i)
        candidates.push_back({id.data()[i], node[i] != 0, scores.data()[i], 0});
    Explorer explorer;
    std::vector<std::int32_t> chosen;
    std::vector<double> probability;
    std::vector<std::uint8_t> explored;
    for (const Choice& c : explorer(candidates, k, explore, how, static_cast<std::uint64_t>(key))) {
        chosen.push_back(c.candidate);
        probability.push_back(c.probability);
        explored.push_back(c.explored);
    }
    const std::size_t n = chosen.size();
    return std::make_tuple(pack1(std::move(chosen)), pack1(std::move(probability)),
                           pack_bool<Out<bool>>(std::move(explored), n));
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
    m.doc() = "The native core of treetop: plain arrays in, plain arrays out.";
    nb::class_<Engine>(m, "Engine")
        .def(nb::init<In<std::int32_t>, In<std::int32_t>, In<std::int64_t>, In<std::int32_t>, In<float>,
                      In<std::int64_t>, In<std::int32_t>, In<float>, std::int64_t, bool, int>(),
             "parents"_a.noconvert(), "leaf_of"_a.noconvert(), "route_start"_a.noconvert(), "route_index"_a.noconvert(),
             "route_value"_a.noconvert(), "reward_start"_a.noconvert(), "reward_index"_a.noconvert(),
             "reward_value"_a.noconvert(), "columns"_a, "geometric"_a, "threads"_a)
        .def("decide", &Engine::decide, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
             "keys"_a.noconvert(), "k"_a, "explore"_a, "beam"_a, "beta"_a, "strategy"_a, "rate"_a, "eligible_kind"_a,
             "positions"_a.noconvert(), "position_start"_a.noconvert(), "threads"_a,
             "Decisions for rows of contexts: arms, nodes, propensities, scores, explored.")
        .def("search", &Engine::search, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "wanted"_a,
             "beam"_a, "beta"_a, "eligible_kind"_a, "positions"_a.noconvert(),
             "Effective arms of one context: is_node, id, log route, score.")
        .def("arm_below", &Engine::arm_below, "node"_a, "key"_a, "slot"_a, "eligible_kind"_a, "positions"_a.noconvert(),
             "A uniform eligible arm below a node, and how many there are.");
    m.def("layout", &bind_layout, "parents"_a.noconvert(), "leaf_of"_a.noconvert(),
          "begin, end, arm_at, position_of, depth of a valid tree.");
    m.def("build_hierarchy", &bind_hierarchy, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(),
          "columns"_a, "branching"_a, "max_leaf"_a, "cocluster"_a, "iterations"_a, "seed"_a, "threads"_a,
          "parents and leaf_of of a balanced tree over arm vectors.");
    m.def("fit", &bind_fit, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "columns"_a,
          "group_start"_a.noconvert(), "group_rows"_a.noconvert(), "target"_a.noconvert(), "loss"_a, "cost"_a,
          "tolerance"_a, "passes"_a, "exact_up_to"_a, "threshold"_a, "seed"_a, "threads"_a,
          "Sparse weights on [x; 1], one row per group of samples.");
    m.def("choose", &bind_choose, "scores"_a.noconvert(), "is_node"_a.noconvert(), "id"_a.noconvert(), "k"_a,
          "explore"_a, "strategy"_a, "rate"_a, "key"_a,
          "Slots from scores: which candidate, its probability, whether drawn.");
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
    bind_read(m);
    bind_flat(m);
}

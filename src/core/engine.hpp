// A model ready to decide as Python calls it: arrays in, arrays out. Names and signatures are in bind_engine.cpp.
#pragma once

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "asked.hpp"
#include "decide.hpp"
#include "one.hpp"
#include "probe.hpp"
#include "python.hpp"

namespace treetop {

namespace nb = nanobind;

// A model ready to decide. Read-only after construction, so that any number of threads may call it at once; each call
// borrows scratch space from a pool.
class Engine {
public:
    Engine(In<std::int32_t> parents, In<std::int32_t> leaf_of, In<std::int64_t> route_start,
           In<std::int32_t> route_index, In<float> route_value, In<std::int64_t> reward_start,
           In<std::int32_t> reward_index, In<float> reward_value, std::int64_t columns, bool geometric, int threads,
           const std::string& file) {
        const Rows routing = rows(route_start, route_index, route_value, columns);
        const Rows rewards = rows(reward_start, reward_index, reward_value, columns);
        const auto up = view(parents), leaves = view(leaf_of);
        try {
            const nb::gil_scoped_release release;
            model_ = make_model(up, leaves, routing, rewards, geometric, threads, file);
        } catch (const std::system_error& error) {  // such as a full disk
            errno = error.code().value();
            PyErr_SetFromErrnoWithFilename(PyExc_OSError, file.c_str());
            throw nb::python_error();
        }
    }

    Engine(In<std::int32_t> parents, In<std::int32_t> leaf_of, In<std::int64_t> route_start,
           In<std::int32_t> route_index, In<float> route_value, std::int64_t columns, bool geometric,
           In<std::uint8_t> layout)
        : mapped_(layout) {
        const Rows routing = rows(route_start, route_index, route_value, columns);
        const auto up = view(parents), leaves = view(leaf_of);
        const auto bytes = std::as_bytes(view(layout));
        const nb::gil_scoped_release release;
        model_ = open_model(up, leaves, routing, geometric, bytes);
    }

    // To be called before the engine is shared: what treetop's learner adds to scores.
    void set_pooled(In<float> means, double node_mean, In<std::int32_t> sample_count, In<float> trial_value,
                    In<std::int32_t> new_trials, double exploration_net, const std::vector<double>& weights) {
        model_.pooled = make_pooled_state(model_.tree, view(means), node_mean, view(sample_count), view(trial_value),
                                          view(new_trials));
        model_.pooled.exploration_net = exploration_net;
        within<std::size_t>("how many weights there are", weights.size(), 2, model_.pooled.weights.size());
        for (std::size_t c = 0; c < weights.size(); ++c) {
            if (!std::isfinite(weights[c]))
                throw std::invalid_argument("the weight of component " + std::to_string(c) + " is " +
                                            std::to_string(weights[c]));
            model_.pooled.weights[c] = static_cast<float>(weights[c]);
        }
    }

    // To be called before the engine is shared (Model::path_weight).
    void set_path_weight(double weight) { model_.path_weight = weight; }

    // To be called before the engine is shared: how contexts and items are compared, and, unless `vectors` is empty,
    // what that says of rewards.
    void set_measure(std::int32_t kind, std::int32_t first, std::int64_t dims, double scale, bool routes,
                     In<float> vectors, In<float> means, const std::array<double, 2>& range, std::int64_t context_dims,
                     In<float> map) {
        within("kind", kind, 0, 2);
        within<std::int64_t>("dims", dims, 1, max_int);
        within<std::int64_t>("context_dims", context_dims, 1, max_int);
        const auto all = view(means);
        Measure measure{static_cast<Measure::Kind>(kind),
                        first,
                        static_cast<std::size_t>(dims),
                        scale,
                        routes,
                        view(vectors),
                        {all.begin(), all.end()},
                        range[0],
                        range[1],
                        static_cast<std::size_t>(context_dims),
                        view(map)};
        check_measure(measure, model_.columns, model_.tree.arms());
        if (routes && (model_.geometric || model_.index.arm_routes))
            throw std::invalid_argument("routing is by the owner's measure, by geometry or down to arms: one of them");
        vectors_ = vectors;
        map_ = map;
        model_.measure = std::move(measure);
    }

    // To be called before the engine is shared: which groups each arm covers, and how much of each.
    void set_coverage(In<std::int64_t> start, In<std::int32_t> group, In<float> share, std::int64_t groups,
                      double saturation) {
        model_.coverage = make_coverage(model_.tree, view(start), view(group), view(share), groups, saturation);
    }

    // How many terms a score is the sum of; 0 where the model gives none.
    std::size_t n_components() const { return model_.components(); }

    // (n, k) log routing scores of given arms; NaN where there is no arm (-1).
    auto routes(In<std::int64_t> start, In<std::int32_t> index, In<float> value, In<std::int32_t> arms, std::int64_t k,
                int threads) const {
        const Rows contexts = rows(start, index, value, model_.columns - 1);
        const auto asked = view(arms);
        const std::size_t n = contexts.size();
        within<std::int64_t>("k", k, 1, max_int);
        if (asked.size() != n * static_cast<std::size_t>(k))
            throw std::invalid_argument(std::to_string(asked.size()) + " arms for " + std::to_string(n) +
                                        " contexts with " + std::to_string(k) + " each");
        std::vector<double> out(asked.size());
        {
            const nb::gil_scoped_release release;
            validate(contexts, "context");
            for (const std::int32_t arm : asked)
                within<std::int64_t>("an arm", arm, -1, static_cast<std::int64_t>(model_.tree.arms()) - 1);
            std::vector<std::unique_ptr<Decider>> deciders(worker_count(threads, n));
            for (auto& decider : deciders) decider = borrow();
            parallel_for(n, threads, 16, [&](int worker, std::size_t i) {
                const std::size_t at = i * static_cast<std::size_t>(k);
                deciders[worker]->routes(contexts[i], asked.subspan(at, static_cast<std::size_t>(k)), out.data() + at);
            });
            for (auto& decider : deciders) give_back(std::move(decider));
        }
        return pack<Out2<double>>(std::move(out), n, k);
    }

    // The whole layout, as it is written to a file.
    std::span<const std::byte> layout() const { return model_.index.arena.bytes(); }

    auto decide(In<std::int64_t> start, In<std::int32_t> index, In<float> value, In<std::int64_t> keys, std::int64_t k,
                std::int64_t explore, std::int64_t beam, double beta, std::int32_t strategy, const Rate& rate,
                std::int32_t eligible_kind, In<std::int32_t> positions, In<std::int64_t> position_start, int threads,
                const Mask* mask, double diversity) const {
        const Rows contexts = rows(start, index, value, model_.columns - 1);
        const auto key = view(keys);
        check_slots(k, explore);
        const Ask ask{k, explore, width_of(beam, beta), strategy_of(strategy, rate), diversity};
        const Allowed allowed{eligible_kind, view(positions), view(position_start), mask};
        const std::size_t n = contexts.size();
        Slots slots(n, static_cast<std::size_t>(k), n_components());
        {
            const nb::gil_scoped_release release;
            check(contexts, key.size(), allowed);
            std::vector<std::unique_ptr<Decider>> deciders(worker_count(threads, n));
            for (auto& decider : deciders) decider = borrow();
            const auto order = reading_order(model_, contexts, deciders, threads);
            parallel_for(n, threads, 16, [&](int worker, std::size_t o) {
                const std::size_t i = order[o];
                deciders[worker]->decide(contexts[i], ask, allowed[i], static_cast<std::uint64_t>(key[i]), i, slots);
            });
            for (auto& decider : deciders) give_back(std::move(decider));
        }
        return std::make_tuple(pack<Out2<std::int32_t>>(std::move(slots.arms), n, k),
                               pack<Out2<double>>(std::move(slots.propensities), n, k),
                               pack<Out2<float>>(std::move(slots.scores), n, k),
                               pack_bool<Out2<bool>>(std::move(slots.explored), n, k),
                               pack<Out2<std::int32_t>>(std::move(slots.nodes), n, k),
                               pack<Out3<float>>(std::move(slots.components), n, k, slots.C));
    }

    // Whether a context is right as it is; any other goes the long way, to be put in order or refused.
    bool prepare(One& one, nb::handle start, nb::handle index, nb::handle value, std::int64_t columns) const {
        std::size_t n = 0;
        if (columns != model_.columns - 1 || !nb::try_cast(index, one.index, false) ||
            !nb::try_cast(value, one.value, false) || !one_row(start, n) || n > one.index.size() ||
            n > one.value.size())
            return false;
        one.x = {view(one.index).first(n), view(one.value).first(n)};
        for (std::size_t j = 0; j < n; ++j) {
            const bool in_order = one.x.index[j] > (j > 0 ? one.x.index[j - 1] : -1);
            if (!in_order || one.x.index[j] >= columns || !std::isfinite(one.x.value[j])) return false;
        }
        check_slots(one.ask.k, one.ask.explore);
        one.allowed.check(model_.tree, 1);
        one.slots = std::make_unique<Slots>(1, static_cast<std::size_t>(one.ask.k), n_components());
        return true;
    }

    // Fills the slots of a decision that was prepared.
    void run(const One& one) const {
        auto decider = borrow();
        decider->decide(one.x, one.ask, one.allowed[0], one.key, 0, *one.slots);
        give_back(std::move(decider));
    }

    // The effective arms of every context, one behind the other: row i has start[i]:start[i + 1], single arms by id,
    // then nodes by id.
    auto search(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t wanted, std::int64_t beam,
                double beta, std::int32_t eligible_kind, In<std::int32_t> positions, const Mask* mask, int threads,
                double new_arm_trials, const TrialCounts* trial_counts) const {
        const Rows contexts = rows(start, index, value, model_.columns - 1);
        const Allowed allowed{eligible_kind, view(positions), {}, mask};
        const Width width = width_of(beam, beta);
        within<std::int64_t>("wanted", wanted, 0, max_int);
        within("new_arm_trials", new_arm_trials, 0.0, 1e9);
        const std::size_t n = contexts.size();
        std::vector<std::int64_t> ends(1, 0);
        std::vector<std::uint8_t> is_node;
        std::vector<std::int32_t> id;
        std::vector<double> route;
        std::vector<float> score, exploration_value, components, new_share, prior;
        const std::size_t C = n_components();
        {
            const nb::gil_scoped_release release;
            check(contexts, n, allowed);
            std::vector<std::vector<Candidate>> found(n);
            std::vector<std::vector<float>> fresh(n);
            std::vector<std::unique_ptr<Decider>> deciders(worker_count(threads, n));
            for (auto& decider : deciders) decider = borrow();
            parallel_for(n, threads, 16, [&](int worker, std::size_t i) {
                found[i] = deciders[worker]->search(contexts[i], width, static_cast<std::size_t>(wanted), allowed[i]);
                std::ranges::sort(found[i], {}, [](const Candidate& c) { return std::pair(c.node, c.id); });
                const auto share = deciders[worker]->newness(found[i], new_arm_trials, trial_counts).share;
                fresh[i].assign(share.begin(), share.end());
                fresh[i].resize(found[i].size());
            });
            for (auto& decider : deciders) give_back(std::move(decider));
            for (const auto& row : fresh) new_share.insert(new_share.end(), row.begin(), row.end());
            for (const auto& row : found) {
                for (const Candidate& c : row) {
                    is_node.push_back(c.node);
                    id.push_back(c.id);
                    route.push_back(c.route);
                    score.push_back(c.score);
                    exploration_value.push_back(c.value);
                    prior.push_back(prior_score(model_, c));
                    components.resize(components.size() + C);
                    put_components(model_, c, components.data() + components.size() - C);
                }
                ends.push_back(static_cast<std::int64_t>(id.size()));
            }
        }
        const std::size_t size = id.size();
        return std::make_tuple(pack1(std::move(ends)), pack_bool<Out<bool>>(std::move(is_node), size),
                               pack1(std::move(id)), pack1(std::move(route)), pack1(std::move(score)),
                               pack1(std::move(exploration_value)), pack<Out2<float>>(std::move(components), size, C),
                               pack1(std::move(new_share)), pack1(std::move(prior)));
    }

    // `NewDraws::totals` of all decisions that are done.
    std::array<double, 5> new_arm_spending() const {
        std::array<double, 5> sums{};
        const std::lock_guard<std::mutex> lock(guard_);
        for (const auto& decider : idle_) {
            const auto& of = decider->new_draws().totals();
            for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of[i];
        }
        return sums;
    }

    // A uniform eligible arm below `node`, and how many there are.
    std::tuple<std::int32_t, std::int32_t> arm_below(std::int32_t node, std::int64_t key, std::int64_t slot,
                                                     std::int32_t eligible_kind, In<std::int32_t> positions,
                                                     const Mask* mask) const {
        const Allowed allowed{eligible_kind, view(positions), {}, mask};
        check_node(node);
        within("eligible_kind", eligible_kind, 0, 2);
        allowed.check_list(allowed.listed, model_.tree);
        auto decider = borrow();
        const std::int32_t below = decider->arms_below(node, allowed[0]);
        if (below == 0) throw std::invalid_argument("no eligible arm below node " + std::to_string(node));
        const std::int32_t arm = decider->arm_below(
            node, allowed[0], derive(static_cast<std::uint64_t>(key), ~static_cast<std::uint64_t>(slot)));
        give_back(std::move(decider));
        return {arm, below};
    }

    Out<std::int64_t> lines(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t wanted,
                            std::int64_t beam) const {
        const Rows contexts = rows(start, index, value, model_.columns - 1);
        within<std::int64_t>("wanted", wanted, 0, max_int);
        check(contexts, 1, {});
        auto decider = borrow();
        auto found = lines_read(*decider, layout(), contexts[0], width_of(beam, -1), static_cast<std::size_t>(wanted));
        give_back(std::move(decider));
        return pack1(std::move(found));
    }

    auto touch(In<std::int64_t> numbers) const {
        const auto last = static_cast<std::int64_t>(layout().size() / line_bytes) - 1;
        for (const std::int64_t number : view(numbers)) within<std::int64_t>("line", number, 0, last);
        const auto [seconds, sum] = treetop::touch(layout(), view(numbers));
        return std::make_tuple(seconds, sum);
    }

    auto stages(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t key, std::int64_t k,
                std::int64_t explore, std::int64_t beam, std::int32_t strategy, const Rate& rate) const {
        const Rows contexts = rows(start, index, value, model_.columns - 1);
        const Ask ask{k, explore, width_of(beam, -1), strategy_of(strategy, rate), 0.0};
        check_slots(k, explore);
        check(contexts, 1, {});
        auto decider = borrow();
        const auto [tree, leaves, choice] =
            treetop::stages(*decider, contexts[0], ask, static_cast<std::uint64_t>(key), n_components());
        give_back(std::move(decider));
        return std::make_tuple(tree, leaves, choice);
    }

    // What calls of the same kind in other files need (bind_probability.cpp).
    const Model& model() const { return model_; }

    void check(const Rows& contexts, std::size_t keys, const Allowed& allowed) const {
        if (contexts.size() != keys)
            throw std::invalid_argument(std::to_string(contexts.size()) + " contexts, but " + std::to_string(keys) +
                                        " keys");
        validate(contexts, "context");
        allowed.check(model_.tree, keys);
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

private:
    // Whether the row pointers, of either width, are those of one row; and how long it is.
    static bool one_row(nb::handle start, std::size_t& n) {
        In<std::int32_t> narrow;
        In<std::int64_t> wide;
        std::int64_t first = -1, last = -1;
        if (nb::try_cast(start, narrow, false) && narrow.size() == 2) {
            first = narrow.data()[0];
            last = narrow.data()[1];
        } else if (nb::try_cast(start, wide, false) && wide.size() == 2) {
            first = wide.data()[0];
            last = wide.data()[1];
        }
        n = static_cast<std::size_t>(last);
        return first == 0 && last >= 0;
    }

    void check_node(std::int32_t node) const {
        if (node < 0 || node >= static_cast<std::int32_t>(model_.tree.nodes()))
            throw std::invalid_argument("node " + std::to_string(node) + " is outside [0, " +
                                        std::to_string(model_.tree.nodes()) + ")");
    }

    In<std::uint8_t> mapped_;  // keeps the memory of a borrowed layout
    In<float> vectors_, map_;  // and that of the items' vectors and of the map to their space
    Model model_;
    mutable std::mutex guard_;
    mutable std::vector<std::unique_ptr<Decider>> idle_;
};

}  // namespace treetop

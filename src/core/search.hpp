// Context to effective arms: Algorithm 2 (beam search) and the adaptive search of Section 4. Draws nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "candidate.hpp"
#include "chunk_scores.hpp"
#include "eligible.hpp"
#include "model.hpp"
#include "reuse.hpp"
#include "rows.hpp"

namespace treetop {

class Searcher {
public:
    explicit Searcher(const Model& model) : model_(model), scores_(model.columns) {}

    // The effective arms of [x; 1], at least `wanted` of them where there are that many eligible arms: too narrow a
    // search is repeated twice as wide until there are enough or all are single arms.
    const std::vector<Candidate>& operator()(const Row& x, Width width, std::size_t wanted, const Eligible& eligible,
                                             Reuse reuse = Reuse::none) {
        if (reuse != Reuse::last) prepare(x);
        memory_.begin(reuse, model_.index.entries.size());
        const auto widest = static_cast<std::int64_t>(model_.tree.nodes());  // beyond it a beam is no wider
        width.beam = std::min(width.beam, widest);
        for (int attempt = 1;; ++attempt) {
            const bool pruned = search(x, width, eligible);
            if (!pruned || found_.size() >= wanted) return found_;
            if (width.beta < 0)
                width.beam *= 2;
            else if (attempt < 64)
                width.beta /= 2;
            else  // a node of radius 0 has g = 0 for any other context, so that no beta keeps it: prune nothing
                width = {widest, -1};
        }
    }

    // The log routing scores of the given arms, whatever a beam would keep: those of their leaves, and of their own
    // where arms have any. -1 stands for no arm.
    void routes(const Row& x, std::span<const std::int32_t> arms, double* out) {
        prepare(x);
        places_.clear();
        for (const std::int32_t arm : arms)
            if (arm >= 0) places_.push_back(model_.tree.position_of[arm]);
        std::sort(places_.begin(), places_.end());
        const auto leads = [&](const Visit& visit) {
            const auto next = std::lower_bound(places_.begin(), places_.end(), at(visit).begin);
            return next != places_.end() && *next < at(visit).end;
        };
        frontier_.assign(1, {0, 0, 0.0f, 0.0, 0.0, 0});
        while (!places_.empty() && inner(frontier_)) {
            expand(x, {});
            frontier_.clear();
            std::copy_if(children_.begin(), children_.end(), std::back_inserter(frontier_), leads);
        }
        if (model_.index.arm_routes) {
            for (Visit& leaf : frontier_) leaf.scored = plan(at(leaf).chunk, arm_slots(leaf));
            scores_.score(x);
        }
        for (std::size_t i = 0; i < arms.size(); ++i) {
            out[i] = std::numeric_limits<double>::quiet_NaN();
            if (arms[i] < 0) continue;
            const std::int32_t place = model_.tree.position_of[arms[i]];
            for (const Visit& leaf : frontier_)
                if (at(leaf).begin <= place && place < at(leaf).end) out[i] = route_of(leaf, place);
        }
    }

    // The tree position of the first arm of the leaf that a beam of one reaches: contexts with neighbouring ones read
    // much the same memory.
    std::int32_t neighbourhood(const Row& x) {
        prepare(x);
        for (frontier_.assign(1, {0, 0, 0.0f, 0.0, 0.0, 0}); at(frontier_[0]).children > 0;) {
            expand(x, {});
            if (children_.empty()) break;  // no arm below any child
            found_.clear();
            keep_best(1);
        }
        return at(frontier_[0]).begin;
    }

    // Notes every cache line of the layout that is read, and when a search comes to the leaves; nullptr stops it.
    void trace(std::vector<const std::byte*>* lines) { scores_.trace(lines); }
    void time(std::chrono::steady_clock::time_point* leaves) { leaves_ = leaves; }

private:
    struct Visit {
        std::int32_t place;  // in Walk::nodes (blocks.hpp)
        std::int32_t node;
        float score;
        double own;          // log routing score of the node itself
        double route;        // the same, summed along the path
        std::size_t scored;  // where in scores_ those of the block that holds the node begin
    };

    void prepare(const Row& x) {
        x_ = x;
        square_ = 0;
        scores_.begin(x);
        memory_.begin(Reuse::none, 0);
        if (model_.measure.dims > 0) vector_square_ = model_.measure.take(x, vector_);
        if (model_.geometric)
            for (std::size_t j = 0; j + 1 < x.size(); ++j) square_ += static_cast<double>(x.value[j]) * x.value[j];
    }

    const Node& at(const Visit& visit) const { return model_.index.walk.nodes[visit.place]; }

    bool inner(std::span<const Visit> visits) const {
        return std::ranges::any_of(visits, [&](const Visit& visit) { return at(visit).children > 0; });
    }

    // Level by level: Algorithm 2, or the adaptive search of Section 4. A leaf reached before the last level keeps its
    // place. Says whether a node was pruned.
    bool search(const Row& x, const Width& width, const Eligible& eligible) {
        found_.clear();
        if (!memory_.on()) scores_.forget();
        frontier_.assign(1, {0, 0, 0.0f, 0.0, 0.0, 0});
        while (inner(frontier_)) {
            expand(x, eligible);
            if (width.beta < 0)
                keep_best(width.beam);
            else
                keep_near(std::log(width.beta));
        }
        const bool pruned = !found_.empty();
        if (leaves_) *leaves_ = std::chrono::steady_clock::now();
        add_arms(x, eligible);
        return pruned;
    }

    // frontier_ -> children_: the children that have an eligible arm below them; leaves as they are.
    void expand(const Row& x, const Eligible& eligible) {
        const std::span<const Node> nodes = model_.index.walk.nodes;
        for (Visit& visit : frontier_) {
            const Node& parent = at(visit);
            if (parent.children == 0 || parent.chunk < 0) continue;
            visit.scored = plan(parent.chunk, 2 * static_cast<std::size_t>(parent.size));
            for (std::int32_t i = 0; i < parent.size; i += 2) prefetch(&nodes[parent.child + i]);
        }
        scores_.score(x);
        children_.clear();
        if (eligible.lazy()) ask_below(*eligible.mask);
        for (const Visit& visit : frontier_) {
            const Node& parent = at(visit);
            if (parent.children == 0) {
                children_.push_back(visit);
                continue;
            }
            const float* routes = scores_.at(visit.scored + static_cast<std::size_t>(parent.slot));
            const float* rewards = routes + parent.size;
            for (std::int32_t place = parent.child; place < parent.child + parent.children; ++place) {
                const Node& child = nodes[place];
                const float route = *routes++, reward = *rewards++;
                if (!eligible.any_below(child.id, child.begin, child.end)) continue;
                if (child.chunk >= 0) prefetch(&model_.index.entries[child.chunk]);
                const double own = log_route(child.id, route);
                // A node's nearness by the owner's measure is all that there is to know: it does not add up.
                const double above = model_.measure.routes ? 0.0 : visit.route;
                children_.push_back({place, child.id, reward, own, above + own, visit.scored});
            }
        }
    }

    // Asks for what says whether there is an eligible arm below the children of frontier_.
    void ask_below(const Mask& mask) const {
        const auto each_begin = [&](auto&& ask) {
            for (const Visit& visit : frontier_)
                for (std::int32_t i = 0; i < at(visit).children; ++i)
                    ask(model_.index.walk.nodes[at(visit).child + i].begin);
        };
        if (mask.bounded()) each_begin([&](std::int32_t begin) { mask.ask_known(begin); });
        each_begin([&](std::int32_t begin) { mask.ask_first(begin); });
    }

    // log g(x) of a node, or of arm -1 - node. Linear: log_linear. Geometric: g = min(1, rad / |x - ctr|). By the
    // owner's measure: g = exp(-slack^3), too.
    double log_route(std::int32_t node, float dot) const {
        check_finite(node, dot);
        if (!model_.geometric) {
            if (!model_.measure.routes) return log_linear(dot);
            const double slack = model_.measure.slack(dot, vector_square_.mapped);
            return -(slack * slack * slack);
        }
        const double far = model_.geometry.distance(node, x_, square_, dot);
        const double radius = model_.geometry.radius[node];
        return far <= radius * radius ? 0.0 : std::log(radius / std::sqrt(far));
    }

    static void check_finite(std::int32_t node, float dot) {
        if (!std::isfinite(dot))
            throw std::invalid_argument(
                "the routing score of " +
                (node < 0 ? "arm " + std::to_string(-1 - node) : "node " + std::to_string(node)) + " is " +
                std::to_string(dot) + "; context or weights are too large");
    }

    // children_ -> the best `beam` by path score into frontier_ (ties: the lower node id), the others into found_; both
    // keep the order of children_.
    void keep_best(std::int64_t beam) {
        frontier_.clear();
        if (static_cast<std::int64_t>(children_.size()) <= beam) {
            frontier_.swap(children_);
            return;
        }
        order_ = children_;
        std::nth_element(order_.begin(), order_.begin() + (beam - 1), order_.end(), ahead);
        const Visit worst = order_[beam - 1];
        for (const Visit& visit : children_) keep(visit, !ahead(worst, visit));
    }

    static bool ahead(const Visit& a, const Visit& b) {
        return a.route != b.route ? a.route > b.route : a.node < b.node;
    }

    // Section 4: a node is far from x if its own g(x) <= beta, and then stands for its arms.
    void keep_near(double limit) {
        frontier_.clear();
        for (const Visit& visit : children_) keep(visit, visit.own > limit);
    }

    void keep(const Visit& visit, bool survives) {
        if (survives) {
            frontier_.push_back(visit);
            return;
        }
        Candidate& node = found_.emplace_back();
        node.id = visit.node;
        node.node = true;
        node.score = visit.score + model_.pooled.node_mean;
        node.value = model_.pooled.exploration_value(visit.node);
        node.route = visit.route;
        node.own = visit.score;
    }

    // The eligible arms of the surviving leaves.
    void add_arms(const Row& x, const Eligible& eligible) {
        const auto kept = [&](const Visit& leaf) { return memory_.arms(at(leaf).chunk); };
        for (Visit& visit : frontier_) {
            if (!kept(visit).empty()) continue;
            visit.scored = plan(at(visit).chunk, arm_slots(visit));
            for (std::int32_t p = at(visit).begin; p < at(visit).end; p += 16) {
                prefetch(model_.tree.arm_at.data() + p);
                if (!model_.pooled.empty()) prefetch(model_.pooled.inverse_count.data() + p);
                if (!model_.pooled.new_trials.empty()) prefetch(model_.pooled.new_trials.data() + p);
            }
            eligible.ask(at(visit).begin, at(visit).end);
        }
        scores_.score(x);
        for (const Visit& leaf : frontier_) {
            if (const auto arms = kept(leaf); !arms.empty()) {
                found_.insert(found_.end(), arms.begin(), arms.end());
                continue;
            }
            const std::size_t first = found_.size();
            add_leaf(leaf, eligible);
            memory_.keep(at(leaf).chunk, std::span(found_).subspan(first));
        }
    }

    void add_leaf(const Visit& leaf, const Eligible& eligible) {
        const std::int32_t begin = at(leaf).begin;
        const float* scores = scores_.at(leaf.scored);
        if (model_.pooled.empty()) {
            eligible.each(begin, at(leaf).end, [&](std::int32_t p) {
                Candidate& arm = add_arm(p, route_of(leaf, p));
                arm.score = scores[p - begin];
            });
            return;
        }
        if (model_.measure.scores()) return add_measured(leaf, eligible);
        if (model_.index.arm_routes) return add_routed(leaf, eligible);
        const PooledState& pooled = model_.pooled;
        const float mean = pooled.mean(leaf.route);
        eligible.each(begin, at(leaf).end, [&](std::int32_t p) {
            Candidate& arm = add_arm(p, leaf.route);
            set_score(arm, mean, scores[p - begin]);
        });
    }

    // The eligible arms of one leaf, which have routing functions of their own.
    void add_routed(const Visit& leaf, const Eligible& eligible) {
        const std::int32_t begin = at(leaf).begin;
        const float* scores = scores_.at(leaf.scored);
        const float* dots = scores + (at(leaf).end - begin);
        places_.clear();
        dots_.clear();
        eligible.each(begin, at(leaf).end, [&](std::int32_t p) {
            places_.push_back(p);
            dots_.push_back(dots[p - begin]);
        });
        const std::size_t n = places_.size();
        routes_.resize(n);
        means_.resize(n);
        scores_.kernels().pool(dots_.data(), n, path_of(leaf), model_.pooled.means, routes_.data(), means_.data());
        for (std::size_t i = 0; i < n; ++i) {
            Candidate& arm = add_arm(places_[i], routes_[i]);
            check_finite(-1 - arm.id, dots_[i]);
            set_score(arm, means_[i], scores[places_[i] - begin]);
        }
    }

    void set_score(Candidate& arm, float mean, float residual) const {
        const PooledState& pooled = model_.pooled;
        arm.score = pooled.weights[0] * mean + pooled.weights[1] * residual;
        arm.value = PooledState::exploration_value(arm.score, pooled.inverse_count[arm.position]);
        arm.own = residual;
    }

    // The eligible arms of one leaf, whose vectors have a say in their scores.
    void add_measured(const Visit& leaf, const Eligible& eligible) {
        const Measure& measure = model_.measure;
        const PooledState& pooled = model_.pooled;
        const std::size_t first = found_.size();
        places_.clear();
        arms_.clear();
        eligible.each(at(leaf).begin, at(leaf).end, [&](std::int32_t p) {
            places_.push_back(p);
            arms_.push_back(add_arm(p, route_of(leaf, p)).id);
        });
        products_.resize(arms_.size());
        scores_.kernels().products(vector_.data(), measure.vectors.data(), measure.dims, arms_.data(), arms_.size(),
                                   measure.kind == Measure::Kind::euclidean, products_.data());
        for (std::size_t i = 0; i < arms_.size(); ++i) {
            Candidate& arm = found_[first + i];
            arm.own = *scores_.at(leaf.scored + static_cast<std::size_t>(places_[i] - at(leaf).begin));
            arm.measured = measure.reward(measure.value(products_[i], vector_square_.given));
            arm.score = pooled.weights[0] * pooled.mean(arm.route) + pooled.weights[1] * arm.own +
                        pooled.weights[2] * arm.measured;
            arm.value = PooledState::exploration_value(arm.score, pooled.inverse_count[places_[i]]);
        }
    }

    // The log routing score of an arm at a position of a leaf that was scored: that of the leaf, or, where arms have
    // routing functions of their own, that of the leaf's parent and the arm. An arm's function tells it from all arms
    // below that parent, so the leaf's own would count twice.
    double route_of(const Visit& leaf, std::int32_t position) const {
        if (!model_.index.arm_routes) return leaf.route;
        const Node& node = at(leaf);
        const float dot = *scores_.at(leaf.scored + static_cast<std::size_t>(node.end - 2 * node.begin + position));
        return path_of(leaf) + log_route(-1 - model_.tree.arm_at[position], dot);
    }

    // What the path to the parent of a leaf adds to the routes of its arms.
    double path_of(const Visit& leaf) const { return model_.path_weight * (leaf.route - leaf.own); }

    // Filled in where it lies: copying what was just written field by field took longer than all the rest of it.
    Candidate& add_arm(std::int32_t position, double route) {
        Candidate& arm = found_.emplace_back();
        arm.id = model_.tree.arm_at[position];
        arm.position = position;
        arm.route = route;
        return arm;
    }

    std::size_t arm_slots(const Visit& leaf) const {
        return (model_.index.arm_routes ? 2 : 1) * static_cast<std::size_t>(at(leaf).end - at(leaf).begin);
    }

    // Where the scores of a chunk will be; those of reward models of nodes that nobody has stay zeros.
    std::size_t plan(std::int32_t number, std::size_t room) {
        if (memory_.knows(number)) return memory_.scored(number);
        const std::size_t scored = scores_.plan(model_.index.chunk(number), room);
        memory_.note(number, scored);
        return scored;
    }

    const Model& model_;
    ChunkScores scores_;
    Row x_;
    double square_ = 0;                     // |x|^2, for geometric routing
    Measure::Squares vector_square_;        // of the context's vector, for the measure
    std::vector<float> vector_, products_;  // that vector; its products with those of arms_
    std::vector<std::int32_t> arms_;
    std::vector<Visit> frontier_, children_, order_;
    std::vector<std::int32_t> places_;
    std::vector<float> dots_, means_;  // of the arms of one leaf: what their routing functions say, pooled means
    std::vector<double> routes_;       // and log routing scores
    std::vector<Candidate> found_;
    SearchMemory memory_;
    std::chrono::steady_clock::time_point* leaves_ = nullptr;
};

}  // namespace treetop

// Context to effective arms: Algorithm 2 (beam search) and the adaptive search of Section 4. Draws nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "index.hpp"
#include "rows.hpp"
#include "tree.hpp"

namespace treetop {

// What the search returns: an arm of a surviving leaf (S_x), or a pruned node standing for all its arms (I_x).
struct Candidate {
    std::int32_t id;
    bool node;
    float score;   // the reward model's estimate
    double route;  // log of the product of routing scores down to the leaf or node
};

// Better: a higher score; on a tie single arms before nodes, then the lower id.
inline bool better(const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.node != b.node) return b.node;
    return a.id < b.id;
}

// How the search narrows: at most `beam` nodes a level (beta < 0), or every node whose routing score exceeds beta.
struct Width {
    std::int64_t beam = 10;
    double beta = -1;
};

struct Model {
    Layout tree;
    std::vector<Chunk> chunks;
    bool geometric = false;
    Geometry geometry;
    std::int64_t columns = 0;  // features and the bias
    std::size_t widest = 1;    // most slots of any chunk
};

inline Model make_model(std::span<const std::int32_t> parents, std::span<const std::int32_t> leaf_of,
                        const Rows& routing, const Rows& rewards, bool geometric, int threads) {
    Model model;
    model.tree = make_layout(parents, leaf_of);
    const Layout& tree = model.tree;
    if (routing.size() != tree.nodes() || rewards.size() != tree.nodes() + tree.arms() ||
        routing.columns != rewards.columns)
        throw std::invalid_argument("a tree of " + std::to_string(tree.nodes()) + " nodes and " +
                                    std::to_string(tree.arms()) + " arms does not fit routing of shape (" +
                                    std::to_string(routing.size()) + ", " + std::to_string(routing.columns) +
                                    ") and rewards of shape (" + std::to_string(rewards.size()) + ", " +
                                    std::to_string(rewards.columns) + ")");
    if (routing.columns < 1) throw std::invalid_argument("routing and rewards lack the column of the bias");
    validate(routing, "routing");
    validate(rewards, "rewards");
    model.columns = routing.columns;
    model.geometric = geometric;
    if (geometric) model.geometry = make_geometry(routing);
    for (std::size_t node = 0; node < model.geometry.radius.size(); ++node)
        if (model.geometry.radius[node] < 0)
            throw std::invalid_argument("routing row " + std::to_string(node) + ": radius " +
                                        std::to_string(model.geometry.radius[node]) + " is negative");
    model.chunks = make_chunks(tree, routing, rewards, geometric, threads);
    for (std::size_t node = 0; node < tree.nodes(); ++node) {
        const auto id = static_cast<std::int32_t>(node);
        const std::size_t arms = tree.leaf(id) ? tree.end[node] - tree.begin[node] : 0;
        model.widest = std::max({model.widest, 2 * tree.children(id).size(), arms});
    }
    return model;
}

class Searcher {
public:
    explicit Searcher(const Model& model) : model_(model), slots_(model.widest) {}

    // The effective arms of [x; 1], at least `wanted` of them where there are that many eligible arms: too narrow a
    // search is repeated twice as wide until there are enough or all are single arms.
    const std::vector<Candidate>& operator()(const Row& x, Width width, std::size_t wanted, const Eligible& eligible) {
        square_ = 0;
        if (model_.geometric)
            for (std::size_t j = 0; j + 1 < x.size(); ++j) square_ += static_cast<double>(x.value[j]) * x.value[j];
        for (int attempt = 1;; ++attempt) {
            const bool pruned =
                width.beta < 0 ? beam_search(x, width.beam, eligible) : adaptive_search(x, width.beta, eligible);
            if (!pruned || found_.size() >= wanted) return found_;
            if (width.beta < 0)
                width.beam *= 2;
            else if (attempt < 64)
                width.beta /= 2;
            else  // a node of radius 0 away from its centre is far at every beta: in the end all are near
                width = {std::numeric_limits<std::int64_t>::max(), -1};
        }
    }

private:
    struct Visit {
        std::int32_t node;
        float score;
        double own;    // log routing score of the node itself
        double route;  // the same, summed along the path
    };

    // log g(x). Linear: g = exp(-max(0, 1 - w.[x; 1])^3). Geometric: g = min(1, rad / |x - ctr|).
    double log_route(std::int32_t node, float dot) const {
        if (!model_.geometric) {
            const double slack = std::max(0.0, 1.0 - static_cast<double>(dot));
            return -(slack * slack * slack);
        }
        const double far = std::max(0.0, square_ - 2.0 * dot + model_.geometry.square[node]);
        const double radius = model_.geometry.radius[node];
        return far <= radius * radius ? 0.0 : std::log(radius / std::sqrt(far));
    }

    // Appends the children of a visited inner node that have an eligible arm below them.
    void expand(const Row& x, const Visit& parent, const Eligible& eligible, std::vector<Visit>& out) {
        const auto children = model_.tree.children(parent.node);
        std::fill_n(slots_.begin(), 2 * children.size(), 0.0f);
        model_.chunks[parent.node].accumulate(x, slots_.data());
        for (std::size_t c = 0; c < children.size(); ++c) {
            const std::int32_t child = children[c];
            if (eligible.count(model_.tree.begin[child], model_.tree.end[child]) == 0) continue;
            const double own = log_route(child, slots_[c]);
            out.push_back({child, slots_[children.size() + c], own, parent.route + own});
        }
    }

    void add_arms(const Row& x, const Visit& leaf, const Eligible& eligible) {
        const std::int32_t begin = model_.tree.begin[leaf.node], end = model_.tree.end[leaf.node];
        std::fill_n(slots_.begin(), end - begin, 0.0f);
        model_.chunks[leaf.node].accumulate(x, slots_.data());
        for (std::int32_t p = begin; p < end; ++p)
            if (eligible.kind == Eligible::Kind::all || eligible.contains(p))
                found_.push_back({model_.tree.arm_at[p], false, slots_[p - begin], leaf.route});
    }

    // Algorithm 2. A leaf reached before the last level keeps its place in the beam by its path score.
    bool beam_search(const Row& x, std::int64_t beam, const Eligible& eligible) {
        found_.clear();
        frontier_.assign(1, {0, 0.0f, 0.0, 0.0});
        for (std::int32_t level = 0; level < model_.tree.depth; ++level) {
            labels_.clear();
            for (const Visit& visit : frontier_) {
                if (model_.tree.leaf(visit.node))
                    labels_.push_back(visit);
                else
                    expand(x, visit, eligible, labels_);
            }
            keep_best(beam);
        }
        const bool pruned = !found_.empty();
        for (const Visit& visit : frontier_) add_arms(x, visit, eligible);
        return pruned;
    }

    // labels_ -> the best `beam` by path score into frontier_ (ties: the lower node id), the others into found_; both
    // keep the order of labels_.
    void keep_best(std::int64_t beam) {
        frontier_.clear();
        if (static_cast<std::int64_t>(labels_.size()) <= beam) {
            frontier_.swap(labels_);
            return;
        }
        const auto ahead = [](const Visit& a, const Visit& b) {
            return a.route != b.route ? a.route > b.route : a.node < b.node;
        };
        order_ = labels_;
        std::nth_element(order_.begin(), order_.begin() + (beam - 1), order_.end(), ahead);
        const Visit last = order_[beam - 1];
        for (const Visit& visit : labels_) {
            if (ahead(last, visit))
                found_.push_back({visit.node, true, visit.score, visit.route});
            else
                frontier_.push_back(visit);
        }
    }

    // Section 4: a node is far from x if g(x) <= beta, and then stands for its arms; otherwise its children are
    // visited.
    bool adaptive_search(const Row& x, double beta, const Eligible& eligible) {
        found_.clear();
        const double limit = std::log(beta);
        bool pruned = false;
        frontier_.assign(1, {0, 0.0f, 0.0, 0.0});
        while (!frontier_.empty()) {
            const Visit visit = frontier_.back();
            frontier_.pop_back();
            if (visit.own <= limit && visit.node != 0) {
                found_.push_back({visit.node, true, visit.score, visit.route});
                pruned = true;
            } else if (model_.tree.leaf(visit.node)) {
                add_arms(x, visit, eligible);
            } else {
                expand(x, visit, eligible, frontier_);
            }
        }
        return pruned;
    }

    const Model& model_;
    std::vector<float> slots_;
    double square_ = 0;  // |x|^2, for geometric routing
    std::vector<Visit> frontier_, labels_, order_;
    std::vector<Candidate> found_;
};

}  // namespace treetop

// What a search reads: tree, weights in the order in which they are read, and what treetop's learner adds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "coverage.hpp"
#include "index.hpp"
#include "measure.hpp"
#include "pooled_state.hpp"
#include "rows.hpp"
#include "tree.hpp"

namespace treetop {

struct Model {
    Layout tree;
    Index index;
    PooledState pooled;
    Measure measure;
    Coverage coverage;
    bool geometric = false;
    double path_weight = 1;  // how much the path counts in the route of an arm with a routing function of its own
    Geometry geometry;
    std::int64_t columns = 0;  // features and the bias

    // How many terms a score is the weighted sum of: the pooled mean, what the arm's own regressor says, and what its
    // vector says where there is one. None without treetop's learner.
    std::size_t components() const { return pooled.empty() ? 0 : 2 + (measure.scores() ? 1 : 0); }
};

inline void set_geometry(Model& model, const Rows& routing) {
    model.geometry = make_geometry(routing);
    for (std::size_t node = 0; node < model.geometry.radius.size(); ++node)
        if (model.geometry.radius[node] < 0)
            throw std::invalid_argument("routing row " + std::to_string(node) + ": radius " +
                                        std::to_string(model.geometry.radius[node]) + " is negative");
}

inline Model make_model(std::span<const std::int32_t> parents, std::span<const std::int32_t> leaf_of,
                        const Rows& routing, const Rows& rewards, bool geometric, int threads,
                        const std::string& file = {}) {
    Model model;
    model.tree = make_layout(parents, leaf_of);
    const Layout& tree = model.tree;
    const bool arm_routes = routing.size() != tree.nodes();
    if ((arm_routes && (geometric || routing.size() != tree.nodes() + tree.arms())) ||
        rewards.size() != tree.nodes() + tree.arms() || routing.columns != rewards.columns)
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
    if (geometric) set_geometry(model, routing);
    model.index = make_index(tree, routing, rewards, geometric, threads, file);
    return model;
}

// From a layout that was written before. The routing rows are looked at only if routing is geometric.
inline Model open_model(std::span<const std::int32_t> parents, std::span<const std::int32_t> leaf_of,
                        const Rows& routing, bool geometric, std::span<const std::byte> layout) {
    Model model;
    model.tree = make_layout(parents, leaf_of);
    if (routing.columns < 1) throw std::invalid_argument("routing lacks the column of the bias");
    model.columns = routing.columns;
    model.geometric = geometric;
    model.index = open_index(model.tree, routing.columns, geometric, routing.size() != model.tree.nodes(), layout);
    if (geometric) {
        validate(routing, "routing");
        if (routing.size() != model.tree.nodes())
            throw std::invalid_argument(std::to_string(routing.size()) + " routing rows for " +
                                        std::to_string(model.tree.nodes()) + " nodes");
        set_geometry(model, routing);
    }
    return model;
}

}  // namespace treetop

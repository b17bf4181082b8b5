// The hierarchy as a decision walks it: children of a node side by side, the arms below any node one stretch of
// positions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace treetop {

struct Layout {
    std::vector<std::int32_t> child_start;  // per node, into child; one more than there are nodes
    std::vector<std::int32_t> child;        // ascending within a parent
    std::vector<std::int32_t> begin, end;   // per node: the positions of the arms below it
    std::vector<std::int32_t> arm_at;       // position -> arm; ascending within a leaf
    std::vector<std::int32_t> position_of;  // arm -> position
    std::int32_t depth = 0;                 // levels below the root

    std::size_t nodes() const { return begin.size(); }
    std::size_t arms() const { return arm_at.size(); }
    bool leaf(std::int32_t node) const { return child_start[node] == child_start[node + 1]; }
    std::span<const std::int32_t> children(std::int32_t node) const {
        return std::span(child).subspan(child_start[node], child_start[node + 1] - child_start[node]);
    }
};

// `parents` and `leaf_of` are the exchange format; whatever breaks their rules is refused here, so that nothing later
// has to.
inline Layout make_layout(std::span<const std::int32_t> parents, std::span<const std::int32_t> leaf_of) {
    const auto nodes = static_cast<std::int32_t>(parents.size());
    if (nodes == 0) throw std::invalid_argument("a tree needs at least the root node");
    if (leaf_of.empty()) throw std::invalid_argument("a tree needs at least one arm");
    if (parents[0] != -1)
        throw std::invalid_argument("node 0 is the root: its parent must be -1, not " + std::to_string(parents[0]));
    Layout tree;
    tree.child_start.assign(nodes + 1, 0);
    std::vector<std::int32_t> level(nodes, 0);
    for (std::int32_t node = 1; node < nodes; ++node) {
        const std::int32_t parent = parents[node];
        if (parent < 0 || parent >= node)
            throw std::invalid_argument("node " + std::to_string(node) + " has parent " + std::to_string(parent) +
                                        "; a parent must precede its children: [0, " + std::to_string(node) + ")");
        ++tree.child_start[parent + 1];
        level[node] = level[parent] + 1;
        tree.depth = std::max(tree.depth, level[node]);
    }
    for (std::int32_t node = 0; node < nodes; ++node) tree.child_start[node + 1] += tree.child_start[node];
    tree.child.resize(nodes - 1);
    auto cursor = tree.child_start;
    for (std::int32_t node = 1; node < nodes; ++node) tree.child[cursor[parents[node]]++] = node;

    std::vector<std::int32_t> below(nodes, 0);
    for (std::size_t arm = 0; arm < leaf_of.size(); ++arm) {
        const std::int32_t leaf = leaf_of[arm];
        if (leaf < 0 || leaf >= nodes)
            throw std::invalid_argument("arm " + std::to_string(arm) + " is in leaf " + std::to_string(leaf) +
                                        ", outside [0, " + std::to_string(nodes) + ")");
        if (!tree.leaf(leaf))
            throw std::invalid_argument("arm " + std::to_string(arm) + " is in node " + std::to_string(leaf) +
                                        ", which has children; arms belong to leaves");
        ++below[leaf];
    }
    for (std::int32_t node = nodes - 1; node > 0; --node) below[parents[node]] += below[node];
    tree.begin.assign(nodes, 0);
    tree.end.assign(nodes, 0);
    tree.end[0] = below[0];
    std::vector<std::int32_t> filled(nodes, 0);  // of a node's stretch, what its earlier children took
    for (std::int32_t node = 1; node < nodes; ++node) {
        const std::int32_t parent = parents[node];
        tree.begin[node] = tree.begin[parent] + filled[parent];
        tree.end[node] = tree.begin[node] + below[node];
        filled[parent] += below[node];
    }
    tree.arm_at.resize(leaf_of.size());
    tree.position_of.resize(leaf_of.size());
    auto place = tree.begin;
    for (std::size_t arm = 0; arm < leaf_of.size(); ++arm) {
        const std::int32_t position = place[leaf_of[arm]]++;
        tree.arm_at[position] = static_cast<std::int32_t>(arm);
        tree.position_of[arm] = position;
    }
    return tree;
}

}  // namespace treetop

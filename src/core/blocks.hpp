// The tree as a decision walks it, cut into blocks of a few levels whose nodes are scored together. Knows no weights.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "arena.hpp"
#include "tree.hpp"

namespace treetop {

// A node and all that a step down from it needs; the children of a node lie side by side, two nodes to a cache line.
struct Node {
    std::int32_t id;
    std::int32_t children = 0;  // how many; none: a leaf
    std::int32_t child = 0;     // the place of the first one
    std::int32_t chunk = -1;    // what to score before the children or arms are known; -1: scored with the node itself
    std::int32_t slot = 0;      // the first child's number in its block
    std::int32_t size = 0;      // how many nodes that block has
    std::int32_t begin, end;    // the positions of the arms below
};
static_assert(sizeof(Node) == 32);

// The root's block holds the first levels, up to 254 nodes; below it every block holds up to 30 nodes, four levels of a
// binary tree (at least one level always). A block is numbered before those below it, and all blocks before the leaves.
struct Walk {
    static constexpr std::size_t top = 254, other = 30;

    struct Stretch {
        std::int32_t first, count;
    };

    Arena memory;
    std::span<const Node> nodes;       // the root in place 0, then block after block, each level by level
    std::vector<Stretch> blocks;       // per block: the places of its nodes
    std::vector<std::int32_t> leaves;  // their ids, ascending
};

inline Walk make_walk(const Layout& tree) {
    Walk walk;
    const auto node = [&](std::int32_t id) { return Node{.id = id, .begin = tree.begin[id], .end = tree.end[id]}; };
    std::vector<Node> nodes{node(0), node(0)};  // one to spare, so that pairs of siblings share a line
    std::vector<std::int32_t> roots{0};         // places; grows while it is read
    for (std::size_t r = 0; r < roots.size(); ++r) {
        if (tree.leaf(nodes[roots[r]].id)) continue;
        const auto block = static_cast<std::int32_t>(walk.blocks.size());
        nodes.resize(nodes.size() + nodes.size() % 2, node(0));
        const std::size_t first = nodes.size(), limit = r == 0 ? Walk::top : Walk::other;
        std::vector<std::int32_t> level{roots[r]}, parents;
        while (!level.empty()) {
            std::size_t more = 0;
            for (const std::int32_t parent : level) more += tree.children(nodes[parent].id).size();
            if (nodes.size() > first && nodes.size() - first + more > limit) break;
            std::vector<std::int32_t> next;
            for (const std::int32_t parent : level) {
                const auto children = tree.children(nodes[parent].id);
                if (children.empty()) continue;
                nodes[parent].children = static_cast<std::int32_t>(children.size());
                nodes[parent].child = static_cast<std::int32_t>(nodes.size());
                nodes[parent].slot = static_cast<std::int32_t>(nodes.size() - first);
                parents.push_back(parent);
                for (const std::int32_t child : children) {
                    next.push_back(static_cast<std::int32_t>(nodes.size()));
                    nodes.push_back(node(child));
                }
            }
            level = std::move(next);
        }
        nodes[roots[r]].chunk = block;
        const auto count = static_cast<std::int32_t>(nodes.size() - first);
        for (const std::int32_t parent : parents) nodes[parent].size = count;
        walk.blocks.push_back({static_cast<std::int32_t>(first), count});
        roots.insert(roots.end(), level.begin(), level.end());
    }
    std::vector<std::int32_t> number(tree.nodes(), -1);
    for (std::int32_t id = 0; id < static_cast<std::int32_t>(tree.nodes()); ++id)
        if (tree.leaf(id)) {
            number[id] = static_cast<std::int32_t>(walk.blocks.size() + walk.leaves.size());
            walk.leaves.push_back(id);
        }
    for (Node& each : nodes)
        if (each.children == 0) each.chunk = number[each.id];
    walk.memory = Arena::make(nodes.size() * sizeof(Node));
    std::memcpy(walk.memory.writable(), nodes.data(), nodes.size() * sizeof(Node));
    walk.nodes = {reinterpret_cast<const Node*>(walk.memory.at(0)), nodes.size()};
    return walk;
}

}  // namespace treetop

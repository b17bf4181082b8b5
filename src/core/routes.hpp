// How well contexts are routed to given arms by linear routing functions, without a layout for searches.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel.hpp"
#include "rows.hpp"

namespace treetop {

// Routing functions on [x; 1]: a row a node, and behind these a row an arm if arms have functions of their own, which
// stand in for those of their leaves. The root is node 0 and has none; a parent precedes its children.
struct LinearRouting {
    Rows weights;
    std::span<const std::int32_t> parents;
    std::span<const std::int32_t> leaf_of;
    double path_weight = 1;  // how much the path counts in the routes of arms with functions of their own

    bool of_arms() const { return weights.size() > parents.size(); }
};

// [x; 1] . w with w spread out, in four sums side by side, none of which waits for another.
inline double spread_dot(const Row& x, const std::vector<float>& w) {
    double sum[4] = {};
    std::size_t j = 0;
    for (; j + 4 <= x.size(); j += 4)
        for (std::size_t c = 0; c < 4; ++c) sum[c] += static_cast<double>(x.value[j + c]) * w[x.index[j + c]];
    for (; j < x.size(); ++j) sum[0] += static_cast<double>(x.value[j]) * w[x.index[j]];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + w.back();
}

// The log routing scores of pairs of a context, which rise, and an arm: log g = -max(0, 1 - [x; 1] . w)^3, summed along
// the path. Function by function: the weights of one are spread out once for all contexts that ask for it, and a
// context asks once for a node, however many of its arms are below. Some pairs at a time bound the memory.
class PairRoutes {
public:
    PairRoutes(const Rows& contexts, const LinearRouting& routing, int threads)
        : contexts_(contexts),
          routing_(routing),
          threads_(threads),
          seen_(routing.parents.size(), -1),
          spread_(worker_count(threads, routing.weights.size()),
                  std::vector<float>(static_cast<std::size_t>(routing.weights.columns), 0.0f)) {}

    void operator()(std::span<const std::int64_t> rows, std::span<const std::int32_t> arms, double* out) {
        asked_.clear();
        ends_.clear();
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const std::int32_t leaf = routing_.leaf_of[arms[i]];
            const std::int32_t last = routing_.of_arms() ? routing_.parents[leaf] : leaf;
            std::int32_t end = ask(rows[i], last);
            if (routing_.of_arms()) {
                asked_.push_back({rows[i], static_cast<std::int32_t>(routing_.parents.size()) + arms[i], end});
                end = static_cast<std::int32_t>(asked_.size()) - 1;
            }
            ends_.push_back(end);
        }
        score();
        for (std::size_t i = 0; i < asked_.size(); ++i)
            if (asked_[i].above >= 0) route_[i] += weight(asked_[i].function) * route_[asked_[i].above];
        for (std::size_t i = 0; i < ends_.size(); ++i) out[i] = ends_[i] >= 0 ? route_[ends_[i]] : 0.0;
    }

private:
    struct Asked {
        std::int64_t context;
        std::int32_t function, above;  // above: the place of the one before it on the path, or -1
    };

    struct Order {
        std::int64_t context, place;  // place: in `asked_`
    };

    double weight(std::int32_t function) const {
        return static_cast<std::size_t>(function) < routing_.parents.size() ? 1 : routing_.path_weight;
    }

    // The place of what a context asks of a node, behind all that is above the node; -1 for the root.
    std::int32_t ask(std::int64_t context, std::int32_t node) {
        if (node <= 0) return -1;
        if (const auto last = static_cast<std::size_t>(seen_[node]);
            last < asked_.size() && asked_[last].function == node && asked_[last].context == context)
            return seen_[node];
        const std::int32_t above = ask(context, routing_.parents[node]);
        asked_.push_back({context, node, above});
        return seen_[node] = static_cast<std::int32_t>(asked_.size()) - 1;
    }

    void score() {
        route_.resize(asked_.size());
        start_.assign(routing_.weights.size() + 1, 0);
        for (const Asked& each : asked_) ++start_[each.function + 1];
        std::partial_sum(start_.begin(), start_.end(), start_.begin());
        next_.assign(start_.begin(), start_.end() - 1);
        by_function_.resize(asked_.size());
        for (std::size_t i = 0; i < asked_.size(); ++i)
            by_function_[next_[asked_[i].function]++] = {asked_[i].context, static_cast<std::int64_t>(i)};
        parallel_for(routing_.weights.size(), threads_, 16, [&](int worker, std::size_t f) {
            if (start_[f] == start_[f + 1]) return;
            std::vector<float>& w = spread_[worker];
            const Row own = routing_.weights[f];
            for (std::size_t j = 0; j < own.size(); ++j) {
                if (own.index[j] < 0 || static_cast<std::size_t>(own.index[j]) >= w.size())
                    throw std::invalid_argument("routing function " + std::to_string(f) + " has a weight of feature " +
                                                std::to_string(own.index[j]) + ", outside [0, " +
                                                std::to_string(w.size()) + ")");
                w[own.index[j]] = own.value[j];
            }
            const auto context = [&](std::size_t a) {
                return contexts_[static_cast<std::size_t>(by_function_[a].context)];
            };
            for (std::size_t a = start_[f]; a < start_[f + 1]; ++a) {
                if (a + 2 < start_[f + 1]) ask_for(context(a + 2));
                const double slack = std::max(0.0, 1.0 - spread_dot(context(a), w));
                route_[by_function_[a].place] = -(slack * slack * slack);
            }
            for (const std::int32_t feature : own.index) w[feature] = 0;
        });
    }

    const Rows& contexts_;
    const LinearRouting& routing_;
    int threads_;
    std::vector<std::int32_t> seen_;  // of each node, where it was asked for last
    std::vector<Asked> asked_;
    std::vector<std::int32_t> ends_;  // of each pair, what it asked last
    std::vector<double> route_;       // of everything asked
    std::vector<std::size_t> start_, next_;
    std::vector<Order> by_function_;          // everything asked, function by function
    std::vector<std::vector<float>> spread_;  // of each thread
};

inline std::vector<double> pair_routes(const Rows& contexts, const LinearRouting& routing,
                                       std::span<const std::int64_t> rows, std::span<const std::int32_t> arms,
                                       int threads) {
    constexpr std::size_t some = std::size_t{1} << 20;  // pairs at a time
    if (routing.weights.size() != routing.parents.size() &&
        routing.weights.size() != routing.parents.size() + routing.leaf_of.size())
        throw std::invalid_argument(std::to_string(routing.weights.size()) + " routing functions of " +
                                    std::to_string(routing.parents.size()) + " nodes and " +
                                    std::to_string(routing.leaf_of.size()) + " arms");
    if (rows.size() != arms.size())
        throw std::invalid_argument(std::to_string(rows.size()) + " rows for " + std::to_string(arms.size()) + " arms");
    for (std::size_t v = 0; v < routing.parents.size(); ++v)
        within<std::int64_t>("a parent", routing.parents[v], -1, static_cast<std::int64_t>(v) - 1);
    for (const std::int32_t leaf : routing.leaf_of)
        within<std::int64_t>("a leaf", leaf, 0, static_cast<std::int64_t>(routing.parents.size()) - 1);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        within<std::int64_t>("row", rows[i], i > 0 ? rows[i - 1] : 0, static_cast<std::int64_t>(contexts.size()) - 1);
        within<std::int64_t>("arm", arms[i], 0, static_cast<std::int64_t>(routing.leaf_of.size()) - 1);
    }
    std::vector<double> out(rows.size());
    PairRoutes routes(contexts, routing, threads);
    for (std::size_t first = 0; first < rows.size(); first += some) {
        const std::size_t n = std::min(some, rows.size() - first);
        routes(rows.subspan(first, n), arms.subspan(first, n), out.data() + first);
    }
    return out;
}

}  // namespace treetop

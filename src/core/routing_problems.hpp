// What routing functions are fitted from, in little room: functions of one family share contexts.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "fit.hpp"
#include "parallel.hpp"
#include "rows.hpp"

namespace treetop {

// Function g is taught by the contexts of its family, +1 for those that are `right` for it and -1 for the others, and
// by samples of its own. The contexts of a family rise, those that are right too. Family -1: none.
struct RoutingProblems {
    std::span<const std::int64_t> shared_start;
    std::span<const std::int32_t> shared_rows;
    std::span<const std::int32_t> family;
    std::span<const std::int64_t> right_start;
    std::span<const std::int32_t> right_rows;
    Groups own;

    std::size_t size() const { return family.size(); }
    std::span<const std::int32_t> shared(std::size_t g) const {
        if (family[g] < 0) return {};
        const auto first = shared_start[family[g]];
        return shared_rows.subspan(first, shared_start[family[g] + 1] - first);
    }
    std::span<const std::int32_t> right(std::size_t g) const {
        return right_rows.subspan(right_start[g], right_start[g + 1] - right_start[g]);
    }
    // Only of what is right somewhere is anything known.
    bool any_right(std::size_t g) const {
        if (right_start[g + 1] > right_start[g]) return true;
        for (auto s = own.start[g]; s < own.start[g + 1]; ++s)
            if (own.target[s] > 0) return true;
        return false;
    }
};

struct RoutingSolver {
    double cost = 1, tolerance = 0.1;
    double held_out_tolerance = 0.3;
    std::int64_t passes = 1000;
};

// Two folds of the contexts. Each function is fitted three times: without fold 0, without fold 1, and on all.
inline constexpr std::size_t routing_folds = 2, routing_parts = routing_folds + 1;

inline void check_routing(const RoutingProblems& problems, std::size_t contexts) {
    const std::vector<float> none(problems.shared_rows.size());
    check_groups({problems.shared_start, problems.shared_rows, none}, contexts);
    check_groups(problems.own, contexts);
    const std::size_t n = problems.size(), families = problems.shared_start.size() - 1;
    if (problems.own.size() != n || problems.right_start.size() != n + 1 || problems.right_start.front() != 0 ||
        problems.right_start.back() != static_cast<std::int64_t>(problems.right_rows.size()))
        throw std::invalid_argument(std::to_string(n) + " routing functions do not fit their samples");
    for (const float y : problems.own.target)
        if (y != 1 && y != -1)
            throw std::invalid_argument("a target of the squared hinge is " + std::to_string(y) + ", not 1 or -1");
    const auto rises = [](std::span<const std::int32_t> rows) {
        return std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) == rows.end();
    };
    for (std::size_t f = 0; f < families; ++f)
        if (const auto first = problems.shared_start[f];
            !rises(problems.shared_rows.subspan(first, problems.shared_start[f + 1] - first)))
            throw std::invalid_argument("the contexts of family " + std::to_string(f) + " do not rise");
    for (std::size_t g = 0; g < n; ++g) {
        within<std::int64_t>("family", problems.family[g], -1, static_cast<std::int64_t>(families) - 1);
        if (problems.right_start[g + 1] < problems.right_start[g])
            throw std::invalid_argument("routing function " + std::to_string(g) + " ends before it begins");
        const auto shared = problems.shared(g), right = problems.right(g);
        if (!rises(right) || !std::includes(shared.begin(), shared.end(), right.begin(), right.end()))
            throw std::invalid_argument("routing function " + std::to_string(g) +
                                        " has right contexts that are not those of its family, rising");
    }
}

// As `fingerprints`, of routing functions; 0 where nothing right is known.
inline std::vector<std::int64_t> routing_fingerprints(const Rows& contexts, const RoutingProblems& problems,
                                                      std::uint64_t key, int threads) {
    const std::vector<std::uint64_t> content = content_hashes(contexts, threads);
    std::vector<std::uint64_t> families(problems.shared_start.size() - 1);
    parallel_for(families.size(), threads, 16, [&](int, std::size_t f) {
        families[f] = key;
        for (auto s = problems.shared_start[f]; s < problems.shared_start[f + 1]; ++s)
            families[f] = fold_hash(families[f], content[problems.shared_rows[s]]);
    });
    std::vector<std::int64_t> out(problems.size());
    parallel_for(out.size(), threads, 1024, [&](int, std::size_t g) {
        if (!problems.any_right(g)) return;
        const auto shared = problems.shared(g);
        std::uint64_t h = problems.family[g] < 0 ? key : families[problems.family[g]];
        for (const std::int32_t row : problems.right(g))
            h = fold_hash(
                h, static_cast<std::uint64_t>(std::lower_bound(shared.begin(), shared.end(), row) - shared.begin()));
        h = fold_hash(h, problems.right(g).size());
        for (auto s = problems.own.start[g]; s < problems.own.start[g + 1]; ++s)
            h = fold_hash(fold_hash(h, content[problems.own.rows[s]]),
                          std::bit_cast<std::uint32_t>(problems.own.target[s]));
        out[g] = static_cast<std::int64_t>(h != 0 ? h : 1);
    });
    return out;
}

}  // namespace treetop

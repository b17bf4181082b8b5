// Many independent linear problems over one set of contexts: routing functions and reward models alike.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel.hpp"
#include "rng.hpp"
#include "rows.hpp"
#include "solve.hpp"

namespace treetop {

// Problem g owns samples [start[g], start[g + 1]): the context rows[s] and its target.
struct Groups {
    std::span<const std::int64_t> start;
    std::span<const std::int32_t> rows;
    std::span<const float> target;
    std::size_t size() const { return start.size() - 1; }
};

inline void check_groups(const Groups& groups, std::size_t contexts) {
    if (groups.start.empty() || groups.start.front() != 0 ||
        groups.start.back() != static_cast<std::int64_t>(groups.rows.size()) ||
        groups.rows.size() != groups.target.size())
        throw std::invalid_argument("groups do not fit their " + std::to_string(groups.rows.size()) + " samples");
    for (std::size_t g = 0; g < groups.size(); ++g)
        if (groups.start[g + 1] < groups.start[g])
            throw std::invalid_argument("group " + std::to_string(g) + " ends before it begins");
    for (const std::int32_t row : groups.rows)
        if (row < 0 || row >= static_cast<std::int64_t>(contexts))
            throw std::invalid_argument("sample of context " + std::to_string(row) + ", outside [0, " +
                                        std::to_string(contexts) + ")");
    for (const float target : groups.target)
        if (!std::isfinite(target)) throw std::invalid_argument("a target is not finite");
}

struct Weights {
    std::vector<std::int64_t> start;
    std::vector<std::int32_t> index;
    std::vector<float> value;
};

// [x; 1] for every sample of problem g: the bias is the last feature, penalised like the rest.
inline void gather(const Rows& contexts, const Groups& groups, std::size_t g, Renumbering& local, Problem& problem) {
    const auto bias = static_cast<std::int32_t>(contexts.columns);
    problem.start.assign(1, 0);
    problem.index.clear();
    problem.value.clear();
    problem.target.clear();
    local.clear();
    for (auto s = groups.start[g]; s < groups.start[g + 1]; ++s) {
        const Row x = contexts[groups.rows[s]];
        for (const std::int32_t f : x.index) problem.index.push_back(local(f));
        problem.index.push_back(local(bias));
        problem.value.insert(problem.value.end(), x.value.begin(), x.value.end());
        problem.value.push_back(1.0f);
        problem.start.push_back(static_cast<std::int64_t>(problem.index.size()));
        problem.target.push_back(groups.target[s]);
    }
}

// Weights of magnitude up to `threshold` are left out. The answer does not depend on the number of threads: each
// problem is solved alone, with a random order of its own.
inline Weights fit(const Rows& contexts, const Groups& groups, const Solver& solver, double threshold,
                   std::uint64_t seed, int threads) {
    struct Entry {
        std::int32_t index;
        float value;
    };
    std::vector<std::vector<Entry>> solved(groups.size());
    std::vector<std::size_t> order(groups.size());
    std::iota(order.begin(), order.end(), 0);
    const auto samples = [&](std::size_t g) { return groups.start[g + 1] - groups.start[g]; };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return samples(a) > samples(b); });

    const int workers = worker_count(threads, groups.size());
    std::vector<Renumbering> renumberings(workers, Renumbering(contexts.columns + 1));
    std::vector<Problem> problems(workers);
    parallel_for(groups.size(), threads, 1, [&](int worker, std::size_t turn) {
        const std::size_t g = order[turn];
        if (samples(g) == 0) return;
        Renumbering& local = renumberings[worker];
        gather(contexts, groups, g, local, problems[worker]);
        std::vector<double> w(local.size(), 0);
        solve(problems[worker], solver, derive(seed, g), w);
        for (std::size_t f = 0; f < w.size(); ++f) {
            const auto value = static_cast<float>(w[f]);
            if (!std::isfinite(value))
                throw std::invalid_argument("group " + std::to_string(g) + ": the weight of feature " +
                                            std::to_string(local.feature(f)) +
                                            " is beyond the limit 3.40282e+38 of float32; scale features or targets");
            if (value != 0 && std::abs(value) > threshold) solved[g].push_back({local.feature(f), value});
        }
        std::sort(solved[g].begin(), solved[g].end(), [](const Entry& a, const Entry& b) { return a.index < b.index; });
    });

    Weights out;
    out.start.assign(1, 0);
    std::size_t total = 0;
    for (const auto& entries : solved) total += entries.size();
    out.index.reserve(total);
    out.value.reserve(total);
    for (auto& entries : solved) {
        for (const Entry& entry : entries) {
            out.index.push_back(entry.index);
            out.value.push_back(entry.value);
        }
        out.start.push_back(static_cast<std::int64_t>(out.index.size()));
        std::vector<Entry>().swap(entries);
    }
    return out;
}

}  // namespace treetop

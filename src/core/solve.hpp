// One l2-regularised linear regressor or classifier: min 1/2 |w|^2 + cost * sum of losses over its samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "rng.hpp"
#include "rows.hpp"

namespace treetop {

enum class Loss : std::int32_t { squared = 0, squared_hinge = 1, absolute = 2 };

struct Solver {
    Loss loss = Loss::squared;
    double cost = 1;
    double tolerance = 1e-3;        // largest projected gradient at the end, in units of the target
    std::int64_t passes = 1000;     // at most, over the samples
    std::int64_t exact_up_to = 64;  // squared loss: solved exactly for that many samples
};

// The samples of one problem with features renumbered 0..m-1, so that the weights in work are small and dense.
struct Problem {
    std::vector<std::int64_t> start{0};
    std::vector<std::int32_t> index;
    std::vector<float> value;
    std::vector<float> target;  // squared hinge: +1 or -1

    std::size_t size() const { return target.size(); }
    double dot(std::size_t i, const std::vector<double>& w) const {
        double sum = 0;
        for (auto j = start[i]; j < start[i + 1]; ++j) sum += static_cast<double>(value[j]) * w[index[j]];
        return sum;
    }
    void axpy(std::size_t i, double a, std::vector<double>& w) const {
        for (auto j = start[i]; j < start[i + 1]; ++j) w[index[j]] += a * value[j];
    }
};

// Dual coordinate descent (Hsieh et al. 2008; Ho and Lin 2012). With w = sum_i b_i x_i the three losses differ only in
// the box of b_i and in D: squared (free, D = 1/(2 cost)), squared hinge (b_i y_i >= 0, D = 1/(2 cost)), absolute
// (|b_i| <= cost, D = 0). The gradient is always x_i.w - y_i + D b_i. Coordinates that rest at a bound are shrunk away
// while the others are solved, and all are looked at again before the end.
inline void coordinate_descent(const Problem& p, const Solver& solver, std::uint64_t key, std::vector<double>& w) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double D = solver.loss == Loss::absolute ? 0 : 1 / (2 * solver.cost);
    const std::size_t n = p.size();
    std::vector<double> b(n, 0), diagonal(n);
    for (std::size_t i = 0; i < n; ++i) {
        double square = D;
        for (auto j = p.start[i]; j < p.start[i + 1]; ++j) square += static_cast<double>(p.value[j]) * p.value[j];
        diagonal[i] = square;
    }
    const auto box = [&](std::size_t i) -> std::pair<double, double> {
        if (solver.loss == Loss::squared) return {-infinity, infinity};
        if (solver.loss == Loss::absolute) return {-solver.cost, solver.cost};
        return p.target[i] > 0 ? std::pair{0.0, infinity} : std::pair{-infinity, 0.0};
    };
    std::vector<std::size_t> active(n);
    std::iota(active.begin(), active.end(), 0);
    Stream stream(key);
    double shrink = infinity;
    for (std::int64_t pass = 0; pass < solver.passes && n > 0; ++pass) {
        for (std::size_t i = active.size(); i > 1; --i) std::swap(active[i - 1], active[stream.below(i)]);
        double worst = 0;
        for (std::size_t a = 0; a < active.size();) {
            const std::size_t i = active[a];
            const auto [low, high] = box(i);
            const double gradient = p.dot(i, w) - p.target[i] + D * b[i];
            double projected = gradient;
            if ((b[i] <= low && gradient > 0) || (b[i] >= high && gradient < 0)) {
                if (std::abs(gradient) > shrink) {
                    active[a] = active.back();
                    active.pop_back();
                    continue;
                }
                projected = 0;
            }
            worst = std::max(worst, std::abs(projected));
            if (projected != 0 && diagonal[i] > 0) {
                const double moved = std::clamp(b[i] - gradient / diagonal[i], low, high);
                p.axpy(i, moved - b[i], w);
                b[i] = moved;
            }
            ++a;
        }
        if (worst <= solver.tolerance) {
            if (active.size() == n) return;
            active.resize(n);
            std::iota(active.begin(), active.end(), 0);
            shrink = infinity;
        } else {
            shrink = worst;
        }
    }
}

// Squared loss exactly: w = sum_i b_i x_i with (K + I / (2 cost)) b = y, by Cholesky on the n x n Gram matrix.
// False if rounding swallows the regulariser (features of a very large scale): then w is zero again.
inline bool gram_cholesky(const Problem& p, const Solver& solver, std::vector<double>& w) {
    const std::size_t n = p.size();
    std::vector<double> L(n * n), b(p.target.begin(), p.target.end());
    for (std::size_t i = 0; i < n; ++i) {
        p.axpy(i, 1.0, w);  // w serves as the dense copy of x_i
        for (std::size_t j = i; j < n; ++j) L[j * n + i] = p.dot(j, w);
        for (auto j = p.start[i]; j < p.start[i + 1]; ++j) w[p.index[j]] = 0;
        L[i * n + i] += 1 / (2 * solver.cost);
    }
    for (std::size_t j = 0; j < n; ++j) {
        const double before = L[j * n + j];
        for (std::size_t k = 0; k < j; ++k) L[j * n + j] -= L[j * n + k] * L[j * n + k];
        if (!(L[j * n + j] > 1e-12 * before)) return false;
        L[j * n + j] = std::sqrt(L[j * n + j]);
        for (std::size_t i = j + 1; i < n; ++i) {
            for (std::size_t k = 0; k < j; ++k) L[i * n + j] -= L[i * n + k] * L[j * n + k];
            L[i * n + j] /= L[j * n + j];
        }
    }
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k < i; ++k) b[i] -= L[i * n + k] * b[k];
        b[i] /= L[i * n + i];
    }
    for (std::size_t i = n; i-- > 0;) {
        for (std::size_t k = i + 1; k < n; ++k) b[i] -= L[k * n + i] * b[k];
        b[i] /= L[i * n + i];
    }
    for (std::size_t i = 0; i < n; ++i) p.axpy(i, b[i], w);
    return true;
}

// w arrives as zeros, one per local feature.
inline void solve(const Problem& p, const Solver& solver, std::uint64_t key, std::vector<double>& w) {
    const bool few = solver.loss == Loss::squared && static_cast<std::int64_t>(p.size()) <= solver.exact_up_to;
    if (!few || !gram_cholesky(p, solver, w)) coordinate_descent(p, solver, key, w);
}

}  // namespace treetop

// One l2-regularised linear regressor or classifier: min 1/2 |w|^2 + cost * sum of losses over its samples.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "parallel.hpp"
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

    double regularizer() const { return loss == Loss::absolute ? 0 : 1 / (2 * cost); }  // D below
};

// The samples of one problem with features renumbered 0..m-1, so that the weights in work are small and dense.
struct Problem {
    std::vector<std::int64_t> start{0};
    std::vector<Nonzero> nonzeros;
    std::vector<float> target;     // squared hinge: +1 or -1
    std::vector<double> diagonal;  // of each sample: |x|^2 and what the loss adds

    std::size_t size() const { return target.size(); }
    std::span<const Nonzero> operator[](std::size_t i) const {
        return std::span(nonzeros).subspan(start[i], start[i + 1] - start[i]);
    }
    double dot(std::size_t i, const std::vector<double>& w) const {
        double sum = 0;
        for (const auto [feature, value] : (*this)[i]) sum += static_cast<double>(value) * w[feature];
        return sum;
    }
    void axpy(std::size_t i, double a, std::vector<double>& w) const {
        for (const auto [feature, value] : (*this)[i]) w[feature] += a * value;
    }
    void find_diagonal(const Solver& solver) {
        diagonal.assign(size(), solver.regularizer());
        for (std::size_t i = 0; i < size(); ++i)
            for (const auto [feature, value] : (*this)[i]) diagonal[i] += static_cast<double>(value) * value;
    }
};

// Dual coordinate descent (Hsieh et al. 2008; Ho and Lin 2012). With w = sum_i b_i x_i the three losses differ only in
// the box of b_i and in D: squared (free, D = 1/(2 cost)), squared hinge (b_i y_i >= 0, D = 1/(2 cost)), absolute
// (|b_i| <= cost, D = 0). The gradient is always x_i.w - y_i + D b_i. Coordinates that rest at a bound are shrunk away
// while the others are solved, and all are looked at again before the end. `features` is how many there are; gives w.
inline std::vector<double> coordinate_descent(const Problem& p, std::size_t features, const Solver& solver,
                                              std::uint64_t key, const Watch& watch) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double D = solver.regularizer();
    const auto box = [&](std::size_t i) -> std::pair<double, double> {
        if (solver.loss == Loss::squared) return {-infinity, infinity};
        if (solver.loss == Loss::absolute) return {-solver.cost, solver.cost};
        return p.target[i] > 0 ? std::pair{0.0, infinity} : std::pair{-infinity, 0.0};
    };
    std::vector<double> b(p.size(), 0), w(features, 0);
    std::vector<std::int32_t> active(p.size());
    std::iota(active.begin(), active.end(), 0);
    Stream stream(key);
    double shrink = infinity;
    for (std::int64_t pass = 0; pass < solver.passes && p.size() > 0; ++pass) {
        watch.check();
        for (std::size_t i = active.size(); i > 1; --i) std::swap(active[i - 1], active[stream.below(i)]);
        double worst = 0;
        for (std::size_t a = 0; a < active.size();) {
            const auto i = static_cast<std::size_t>(active[a]);
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
            if (projected != 0 && p.diagonal[i] > 0) {
                const double moved = std::clamp(b[i] - gradient / p.diagonal[i], low, high);
                p.axpy(i, moved - b[i], w);
                b[i] = moved;
            }
            ++a;
        }
        if (worst <= solver.tolerance) {
            if (active.size() == p.size()) return w;
            active.resize(p.size());
            std::iota(active.begin(), active.end(), 0);
            shrink = infinity;
        } else {
            shrink = worst;
        }
    }
    return w;
}

// One nonzero of one sample.
struct Cell {
    std::int32_t feature, sample;
    float value;
};

// The nonzeros of a few rows feature by feature, those of a feature in the order of the rows: a radix sort whose first
// round reads the rows themselves.
class Columns {
public:
    explicit Columns(std::int64_t features)
        : bits_(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(1, features - 1)))) {}

    std::span<const Cell> operator()(std::span<const Row> rows) {
        std::size_t total = 0;
        for (const Row& row : rows) total += row.size();
        if (total > cells_.size()) {
            cells_.resize(total);
            other_.resize(total);
        }
        const int widest = total < 700 ? 7 : 11;  // bits a round: few cells are not worth many counters
        switch ((bits_ + widest - 1) / widest) {
            case 1:
                sort<1>(rows, total);
                break;
            case 2:
                sort<2>(rows, total);
                break;
            case 3:
                sort<3>(rows, total);
                break;
            case 4:
                sort<4>(rows, total);
                break;
            default:
                sort<5>(rows, total);
        }
        return {cells_.data(), total};
    }

private:
    template <int rounds>
    void sort(std::span<const Row> rows, std::size_t total) {
        const int digit = (bits_ + rounds - 1) / rounds;
        const std::uint32_t size = 1u << digit, mask = size - 1;
        const auto key = [&](std::int32_t feature, int round) {
            return (static_cast<std::uint32_t>(feature) >> (round * digit) & mask) + round * size;
        };
        count_.assign(rounds * size, 0);
        for (const Row& row : rows)
            for (const std::int32_t f : row.index)
                for (int round = 0; round < rounds; ++round) ++count_[key(f, round)];
        for (int round = 0; round < rounds; ++round) {
            std::uint32_t sum = 0;
            for (std::uint32_t d = 0; d < size; ++d) sum += std::exchange(count_[round * size + d], sum);
        }
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Row row = rows[i];
            for (std::size_t j = 0; j < row.size(); ++j)
                cells_[count_[key(row.index[j], 0)]++] = {row.index[j], static_cast<std::int32_t>(i), row.value[j]};
        }
        for (int round = 1; round < rounds; ++round) {
            for (std::size_t c = 0; c < total; ++c) other_[count_[key(cells_[c].feature, round)]++] = cells_[c];
            cells_.swap(other_);
        }
    }

    int bits_;
    std::vector<std::uint32_t> count_;
    std::vector<Cell> cells_, other_;
};

// Squared loss exactly: w = sum_i b_i x_i with (K + I / (2 cost)) b = y, by Cholesky on the n x n Gram matrix K. Gives
// b; empty if rounding swallows the regulariser (features of a very large scale). `cells` come feature by feature.
//
// Every element of K sums over features in ascending order, and every element of the factor subtracts over k in
// ascending order; the loops are turned so that the innermost runs over independent elements side by side.
class GramCholesky {
public:
    std::span<const double> operator()(std::span<const Cell> cells, std::span<const float> target, double cost) {
        const std::size_t n = target.size();
        U_.assign(n * n, 0.0);
        gram(cells, n);
        for (double& k : U_) k += 1;  // the bias, the last feature
        for (std::size_t k = 0; k < n; ++k) U_[k * n + k] += 1 / (2 * cost);
        b_.assign(target.begin(), target.end());
        before_.resize(n);
        for (std::size_t k = 0; k < n; ++k) before_[k] = U_[k * n + k];
        for (std::size_t k = 0; k < n; ++k) {
            double* const row = &U_[k * n];
            if (!(row[k] > 1e-12 * before_[k])) return {};
            row[k] = std::sqrt(row[k]);
            for (std::size_t i = k + 1; i < n; ++i) row[i] /= row[k];
            for (std::size_t j = k + 1; j < n; ++j) {
                const double factor = row[j];
                double* const below = &U_[j * n];
                for (std::size_t i = j; i < n; ++i) below[i] -= row[i] * factor;
            }
            b_[k] /= row[k];
            for (std::size_t i = k + 1; i < n; ++i) b_[i] -= row[i] * b_[k];
        }
        for (std::size_t i = n; i-- > 0;) {
            for (std::size_t k = i + 1; k < n; ++k) b_[i] -= U_[i * n + k] * b_[k];
            b_[i] /= U_[i * n + i];
        }
        return b_;
    }

private:
    void gram(std::span<const Cell> cells, std::size_t n) {
        for (std::size_t first = 0, end = 0; first < cells.size(); first = end) {
            while (end < cells.size() && cells[end].feature == cells[first].feature) ++end;
            for (std::size_t p = first; p < end; ++p) {
                const double value = cells[p].value;
                double* const row = &U_[cells[p].sample * n];
                for (std::size_t q = p; q < end; ++q) row[cells[q].sample] += value * cells[q].value;
            }
        }
    }

    std::vector<double> U_, b_, before_;  // U: the upper triangle, row by row
};

}  // namespace treetop

// Many independent linear problems over one set of contexts: routing functions and reward models alike.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "growing.hpp"
#include "parallel.hpp"
#include "rng.hpp"
#include "rows.hpp"
#include "solve.hpp"

namespace treetop {

// Problem g owns samples [start[g], start[g + 1]): the context rows[s] and its target. Its number is first + g: those
// of a shard have the numbers, and with them the random orders, that they have among all problems.
struct Groups {
    std::span<const std::int64_t> start;
    std::span<const std::int32_t> rows;
    std::span<const float> target;
    std::uint64_t first = 0;
    std::size_t size() const { return start.size() - 1; }
    std::int64_t samples(std::size_t g) const { return start[g + 1] - start[g]; }
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

inline std::uint64_t fold_hash(std::uint64_t h, std::uint64_t word) { return mix(h ^ word) + 0x9e3779b97f4a7c15ULL; }

// 64 bits a context that tell what it contains.
inline std::vector<std::uint64_t> content_hashes(const Rows& contexts, int threads) {
    std::vector<std::uint64_t> content(contexts.size());
    parallel_for(contexts.size(), threads, 1024, [&](int, std::size_t i) {
        const Row x = contexts[i];
        std::uint64_t h = x.size();
        for (std::size_t j = 0; j < x.size(); ++j)
            h = fold_hash(h, static_cast<std::uint64_t>(x.index[j]) << 32 | std::bit_cast<std::uint32_t>(x.value[j]));
        content[i] = h;
    });
    return content;
}

// 64 bits a problem that tell what it was fitted from: the content of its contexts, its targets, their order, and
// `key`, which stands for everything else that decides the weights. A problem without samples has 0, any other not.
inline std::vector<std::int64_t> fingerprints(const Rows& contexts, const Groups& groups, std::uint64_t key,
                                              int threads) {
    const std::vector<std::uint64_t> content = content_hashes(contexts, threads);
    std::vector<std::int64_t> out(groups.size());
    parallel_for(groups.size(), threads, 1024, [&](int, std::size_t g) {
        if (groups.samples(g) == 0) return;
        std::uint64_t h = key;
        for (auto s = groups.start[g]; s < groups.start[g + 1]; ++s)
            h = fold_hash(fold_hash(h, content[groups.rows[s]]), std::bit_cast<std::uint32_t>(groups.target[s]));
        out[g] = static_cast<std::int64_t>(h != 0 ? h : 1);
    });
    return out;
}

// Weights of some problems, one after the other, as a thread finds them.
class Part {
public:
    void make_room(std::size_t more) {
        if (size_ + more <= index_.size()) return;
        const std::size_t room = std::max(size_ + more, 2 * size_);
        index_.resize(room);
        value_.resize(room);
    }
    // Into room made before; weights of magnitude up to `threshold` are left out.
    void push(std::int32_t feature, double weight, float threshold, std::size_t g) {
        const auto rounded = static_cast<float>(weight);
        const float magnitude = std::abs(rounded);
        if (!(magnitude <= std::numeric_limits<float>::max())) refuse(feature, g);
        index_[size_] = feature;
        value_[size_] = rounded;
        size_ += magnitude > threshold;
    }
    Row row(std::size_t first, std::size_t n) const {
        return {std::span(index_).subspan(first, n), std::span(value_).subspan(first, n)};
    }
    std::size_t size() const { return size_; }
    void clear() { size_ = 0; }

private:
    [[noreturn]] static void refuse(std::int32_t feature, std::size_t g) {
        throw std::invalid_argument("group " + std::to_string(g) + ": the weight of feature " +
                                    std::to_string(feature) +
                                    " is beyond the limit 3.40282e+38 of float32; scale features or targets");
    }

    std::vector<std::int32_t> index_;
    std::vector<float> value_;
    std::size_t size_ = 0;
};

// Weights of all problems: one row each.
struct Weights {
    std::vector<std::int64_t> start{0};
    Growing<std::int32_t> index;
    Growing<float> value;

    void append(const Row& row) {
        index.append(row.index);
        value.append(row.value);
        start.push_back(static_cast<std::int64_t>(index.size()));
    }
};

// Weights from before: problem g with keep[g] != 0 has row g of `rows`, those of every fit. Empty: none.
struct Known {
    std::span<const std::uint8_t> keep;
    std::vector<Rows> rows;
    bool operator()(std::size_t g) const { return !keep.empty() && keep[g] != 0; }
};

// What one thread needs to solve one problem after another. Samples are [x; 1]: the bias is the last feature,
// penalised like the rest.
class Worker {
public:
    Worker(const Rows& contexts, const Groups& groups, const Solver& solver, std::span<const float> thresholds,
           std::uint64_t seed, const Watch& watch)
        : contexts_(contexts),
          groups_(groups),
          solver_(solver),
          thresholds_(thresholds),
          seed_(seed),
          watch_(watch),
          columns_(contexts.columns + 1) {}

    // Adds the weights of problem g, in order of features.
    void solve(std::size_t g, Part& out) {
        if (!exact(g, out)) descend(g, out);
    }

private:
    bool exact(std::size_t g, Part& out) {
        if (solver_.loss != Loss::squared || groups_.samples(g) > solver_.exact_up_to) return false;
        find_rows(g);
        const auto cells = columns_(rows_);
        const auto target = groups_.target.subspan(groups_.start[g], groups_.samples(g));
        const auto b = cholesky_(cells, target, solver_.cost);
        if (b.empty()) return false;
        out.make_room(cells.size() + 1);
        for (std::size_t first = 0, end = 0; first < cells.size(); first = end) {
            double w = 0;
            for (; end < cells.size() && cells[end].feature == cells[first].feature; ++end)
                w += b[cells[end].sample] * cells[end].value;
            out.push(cells[first].feature, w, threshold(cells[first].feature), g);
        }
        out.push(bias(), std::accumulate(b.begin(), b.end(), 0.0), threshold(bias()), g);
        return true;
    }

    void descend(std::size_t g, Part& out) {
        gather(g);
        push(g, coordinate_descent(problem_, local_->size(), solver_, derive(seed_, groups_.first + g), watch_), out);
    }

    void push(std::size_t g, const std::vector<double>& w, Part& out) {
        const std::vector<float> rounded(w.begin(), w.end());
        const Row unordered{local_->features(), rounded};
        out.make_room(rounded.size());
        for (const Cell& cell : columns_({&unordered, 1}))
            out.push(cell.feature, cell.value, threshold(cell.feature), g);
    }

    void gather(std::size_t g) {
        if (!local_) local_.emplace(contexts_.columns + 1);
        local_->clear();
        find_rows(g);
        std::size_t total = rows_.size();
        for (const Row& row : rows_) total += row.size();
        problem_.start.assign(1, 0);
        problem_.nonzeros.resize(total);
        std::size_t at = 0;
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            if (i + ahead < rows_.size()) ask_for(rows_[i + ahead]);
            for (std::size_t j = 0; j < rows_[i].size(); ++j)
                problem_.nonzeros[at++] = {(*local_)(rows_[i].index[j]), rows_[i].value[j]};
            problem_.nonzeros[at++] = {(*local_)(bias()), 1.0f};
            problem_.start.push_back(static_cast<std::int64_t>(at));
        }
        const auto target = groups_.target.subspan(groups_.start[g], groups_.samples(g));
        problem_.target.assign(target.begin(), target.end());
        problem_.find_diagonal(solver_);
    }

    void find_rows(std::size_t g) {
        rows_.clear();
        for (auto s = groups_.start[g]; s < groups_.start[g + 1]; ++s) rows_.push_back(contexts_[groups_.rows[s]]);
        for (std::size_t i = 0; i < std::min(rows_.size(), ahead); ++i) ask_for(rows_[i]);
    }

    float threshold(std::int32_t feature) const { return thresholds_.empty() ? 0.0f : thresholds_[feature]; }
    std::int32_t bias() const { return static_cast<std::int32_t>(contexts_.columns); }

    static constexpr std::size_t ahead = 64;  // rows that are asked for before they are read
    const Rows& contexts_;
    const Groups& groups_;
    const Solver& solver_;
    std::span<const float> thresholds_;
    std::uint64_t seed_;
    const Watch& watch_;
    std::optional<Renumbering> local_;  // as long as there are features: made when it is needed
    Problem problem_;
    std::vector<Row> rows_;
    Columns columns_;
    GramCholesky cholesky_;
};

// Where a thread has put the weights of a problem.
struct Piece {
    int worker = 0;
    std::size_t first = 0, size = 0;
};

// The answer does not depend on the number of threads: each problem is solved alone, with a random order of its own.
// Problems of many samples come first, the largest at the head, so that no thread is left alone with one at the end;
// the others in batches of neighbours, each put together at once, so that the weights are never in memory twice.
// `thresholds` says up to which magnitude the weights of each feature, and last of the bias, are left out; empty: 0.
inline Weights fit(const Rows& contexts, const Groups& groups, const Solver& solver, std::span<const float> thresholds,
                   std::uint64_t seed, const Known& known, int threads, Watch& watch) {
    constexpr std::int64_t many = 256, batch = 1 << 14;  // samples; of a batch, a thread
    const auto work = [&](std::size_t g) { return known(g) ? 0 : groups.samples(g); };
    std::vector<std::size_t> large;
    std::unordered_map<std::size_t, Part> apart;
    std::int64_t total = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        total += work(g);
        if (work(g) <= many) continue;
        large.push_back(g);
        apart[g];
    }
    watch.begin(total);
    std::stable_sort(large.begin(), large.end(), [&](auto a, auto b) { return work(a) > work(b); });
    std::vector<Worker> workers;
    for (int i = worker_count(threads, groups.size()); i > 0; --i)
        workers.emplace_back(contexts, groups, solver, thresholds, seed, watch);
    parallel_for(large.size(), threads, 1, [&](int worker, std::size_t i) {
        workers[worker].solve(large[i], apart.at(large[i]));
        watch.advance(work(large[i]));
    });

    Weights out;
    out.start.reserve(groups.size() + 1);
    std::vector<Piece> pieces;  // of every problem of a batch
    std::vector<Part> found(workers.size());
    for (std::size_t first = 0, end = 0; first < groups.size(); first = end) {
        for (std::int64_t samples = 0;
             end < groups.size() && samples < batch * static_cast<std::int64_t>(workers.size()); ++end)
            samples += groups.samples(end);
        pieces.assign(end - first, {});
        for (Part& part : found) part.clear();
        parallel_for(end - first, threads, 16, [&](int worker, std::size_t i) {
            const std::int64_t samples = work(first + i);
            if (samples == 0 || samples > many) return;
            pieces[i] = {worker, found[worker].size(), 0};
            workers[worker].solve(first + i, found[worker]);
            pieces[i].size = found[worker].size() - pieces[i].first;
            watch.advance(samples);
        });
        for (std::size_t g = first; g < end; ++g) {
            if (known(g)) {
                out.append(known.rows.front()[g]);
            } else if (work(g) > many) {
                const Part& part = apart.at(g);
                out.append(part.row(0, part.size()));
                apart.erase(g);
            } else {
                const Piece& piece = pieces[g - first];
                out.append(found[piece.worker].row(piece.first, piece.size));
            }
        }
    }
    return out;
}

}  // namespace treetop

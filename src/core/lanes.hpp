// Routing functions of one family side by side: l2-regularised squared hinge, min 1/2 |w|^2 + cost * sum of losses.
//
// All functions of a family are taught by the same contexts, each with targets of its own, and every function by a few
// more. Sixteen of them are a block: their weights of a feature are one line of memory, so that one look at a shared
// context serves all of them. What a function learns does not depend on which others are beside it, nor on how wide the
// block is, to the bit.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fit.hpp"
#include "parallel.hpp"
#include "rng.hpp"
#include "routing_problems.hpp"
#include "rows.hpp"
#include "simd.hpp"

namespace treetop {

struct RoutingWeights {
    bool any = false;  // whether something right is known in the part
    std::vector<std::int32_t> index;
    std::vector<float> value;
};
using RoutingParts = std::array<RoutingWeights, routing_parts>;

// What one thread needs to fit one block after another. Samples are [x; 1]: the bias is the last feature, penalised
// like the rest.
//
// With b_i = y_i beta_i and w = sum_i b_i x_i the dual is least where every beta_i >= 0 is at rest or has the gradient
// y_i x_i.w - 1 + beta_i / (2 cost) = 0 (Hsieh et al. 2008). Samples at rest at 0 are left out as soon as they are
// seen, and all are looked at again before the end.
class LaneBlock {
public:
    LaneBlock(const Rows& contexts, const RoutingProblems& problems, std::span<const std::uint8_t> fold,
              const RoutingSolver& solver, std::span<const float> thresholds, const Watch& watch)
        : contexts_(contexts),
          problems_(problems),
          fold_(fold),
          solver_(solver),
          thresholds_(thresholds),
          watch_(watch),
          kernels_(chosen_kernels()),
          regularizer_(static_cast<float>(1 / (2 * solver.cost))) {}

    // Functions of one family, `lanes` at most; the weights of every part of each.
    void solve(std::span<const std::size_t> functions, std::span<RoutingParts> out) {
        gather(functions);
        sum_.assign(weights_.size(), Line{});
        for (std::size_t fold = 0; fold < routing_folds; ++fold) {
            std::fill(weights_.begin(), weights_.end(), Line{});
            const std::uint32_t known = part(fold);
            descend(known, solver_.held_out_tolerance);
            put(known, fold, out);
            add(weights_, sum_);
        }
        // Every sample is in one of the parts that leave out a fold, so that what they found is a point of the problem
        // as a whole: near enough to its minimum to save a third of the passes.
        weights_ = sum_;
        scale_best();
        const std::uint32_t known = part(routing_folds);
        descend(known, solver_.tolerance);
        put(known, routing_folds, out);
    }

private:
    struct alignas(64) Line {
        float lane[lanes] = {};
    };
    struct Lane {
        std::size_t g = 0, first = 0, end = 0;   // the function, and its own samples
        std::vector<std::int32_t> part, active;  // of its own samples, those that count, and those not left out
        std::size_t kept = 0;
        Stream order{0};
    };

    float* weights(std::size_t lane) { return reinterpret_cast<float*>(weights_.data()) + lane; }
    std::span<const Nonzero> sample(std::size_t i) const {
        return std::span(nonzeros_).subspan(start_[i], start_[i + 1] - start_[i]);
    }
    void ask(std::size_t i) const {
        for (std::size_t j = start_[i]; j < start_[i + 1]; j += 8) prefetch(&nonzeros_[j]);
    }
    float& beta(std::size_t i, std::size_t lane) {
        return beta_[i < shared_ ? i * width_ + lane : shared_ * width_ + i - shared_];
    }

    void gather(std::span<const std::size_t> functions) {
        if (!local_) local_.emplace(contexts_.columns + 1);
        local_->clear();
        width_ = functions.size() == 1 ? 1 : lanes;
        lanes_.resize(functions.size());
        const auto shared = problems_.shared(functions.front());
        shared_ = shared.size();
        context_.assign(shared.begin(), shared.end());
        target_.assign(shared_, 0.0f);  // theirs are in right_
        right_.assign(shared_, 0);
        for (std::size_t c = 0; c < functions.size(); ++c) {
            const std::size_t g = functions[c];
            for (const std::int32_t row : problems_.right(g))
                right_[std::lower_bound(shared.begin(), shared.end(), row) - shared.begin()] |= 1u << c;
            lanes_[c].g = g;
            lanes_[c].first = context_.size();
            for (auto s = problems_.own.start[g]; s < problems_.own.start[g + 1]; ++s) {
                context_.push_back(problems_.own.rows[s]);
                target_.push_back(problems_.own.target[s]);
            }
            lanes_[c].end = context_.size();
        }
        start_.assign(1, 0);
        nonzeros_.clear();
        rate_.resize(context_.size());
        for (std::size_t i = 0; i < context_.size(); ++i) {
            if (i + ahead < context_.size()) ask_for(contexts_[context_[i + ahead]]);
            const Row x = contexts_[context_[i]];
            double square = 1 + 1 / (2 * solver_.cost);
            for (std::size_t j = 0; j < x.size(); ++j) {
                nonzeros_.push_back({(*local_)(x.index[j]), x.value[j]});
                square += static_cast<double>(x.value[j]) * x.value[j];
            }
            nonzeros_.push_back({(*local_)(static_cast<std::int32_t>(contexts_.columns)), 1.0f});
            start_.push_back(nonzeros_.size());
            rate_[i] = static_cast<float>(1 / square);
        }
        beta_.assign(shared_ * width_ + context_.size() - shared_, 0.0f);
        weights_.resize((local_->size() * width_ + lanes - 1) / lanes);
        rising_.resize(local_->size());
        std::iota(rising_.begin(), rising_.end(), 0);
        const auto features = local_->features();
        std::sort(rising_.begin(), rising_.end(), [&](auto a, auto b) { return features[a] < features[b]; });
    }

    // Prepares the samples that are not in a fold; the lanes to which any of them is right.
    std::uint32_t part(std::size_t left_out) {
        std::uint32_t known = 0;
        const auto counts = [&](std::size_t i) { return fold_[context_[i]] != left_out; };
        part_.clear();
        for (std::size_t i = 0; i < shared_; ++i) {
            if (!counts(i)) continue;
            part_.push_back(static_cast<std::int32_t>(i));
            known |= right_[i];
        }
        for (std::size_t c = 0; c < lanes_.size(); ++c) {
            lanes_[c].part.clear();
            for (std::size_t i = lanes_[c].first; i < lanes_[c].end; ++i) {
                if (!counts(i)) continue;
                lanes_[c].part.push_back(static_cast<std::int32_t>(i));
                if (target_[i] > 0) known |= 1u << c;
            }
        }
        return known;
    }

    // A pass takes the shared samples in a random order, which depends on nothing but how many there are, and between
    // its pieces as much of every lane's own.
    void descend(std::uint32_t live, double tolerance) {
        constexpr std::size_t pieces = 16;
        std::uint32_t shrinks = 0, shrunk = 0;
        active_.assign(shared_, 0);
        order_ = part_;
        Stream shuffling(0);
        for (Lane& lane : lanes_) lane.order = Stream(1);
        const auto look_at_all = [&](std::uint32_t which) {
            for (const std::int32_t i : part_) active_[i] |= which;
            for (std::size_t c = 0; c < lanes_.size(); ++c)
                if (which >> c & 1) lanes_[c].active = lanes_[c].part;
            shrinks &= ~which;
            shrunk &= ~which;
        };
        look_at_all(live);
        for (std::int64_t pass = 0; pass < solver_.passes && live != 0; ++pass) {
            watch_.check();
            shuffle(order_, shuffling);
            for (Lane& lane : lanes_) {
                shuffle(lane.active, lane.order);
                lane.kept = 0;
            }
            std::fill(std::begin(worst_), std::end(worst_), 0.0f);
            for (std::size_t piece = 0; piece < pieces; ++piece) {
                for (std::size_t a = order_.size() * piece / pieces; a < order_.size() * (piece + 1) / pieces; ++a) {
                    const auto i = static_cast<std::size_t>(order_[a]);
                    if (a + 2 < order_.size() && (active_[order_[a + 2]] & live)) ask(order_[a + 2]);
                    if ((active_[i] & live) == 0) continue;
                    const std::uint32_t rests = look(i, active_[i] & live) & active_[i] & live & shrinks;
                    active_[i] &= ~rests;
                    shrunk |= rests;
                }
                for (std::size_t c = 0; c < lanes_.size(); ++c) {
                    if (!(live >> c & 1)) continue;
                    auto& own = lanes_[c].active;
                    for (std::size_t a = own.size() * piece / pieces; a < own.size() * (piece + 1) / pieces; ++a) {
                        const auto i = static_cast<std::size_t>(own[a]);
                        if (a + 2 < own.size()) ask(own[a + 2]);
                        const bool rests = look_alone(i, c, target_[i]) && (shrinks >> c & 1);
                        own[lanes_[c].kept] = own[a];
                        lanes_[c].kept += !rests;
                        if (rests) shrunk |= 1u << c;
                    }
                }
            }
            for (std::size_t c = 0; c < lanes_.size(); ++c) {
                const std::uint32_t me = 1u << c;
                if (!(live & me)) continue;
                lanes_[c].active.resize(lanes_[c].kept);
                if (!(worst_[c] <= tolerance)) {
                    shrinks |= me;
                } else if (shrunk & me) {
                    look_at_all(me);
                } else {
                    live &= ~me;
                }
            }
        }
    }

    template <class Order>
    static void shuffle(Order& order, Stream& stream) {
        for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i)]);
    }

    // One step of every active lane along a shared sample; the lanes that are at rest there.
    std::uint32_t look(std::size_t i, std::uint32_t active) {
        if (width_ == 1 || std::has_single_bit(active)) {
            const auto c = static_cast<std::size_t>(std::countr_zero(active));
            return look_alone(i, c, (right_[i] >> c & 1) ? 1.0f : -1.0f) ? 1u << c : 0;
        }
        const auto x = sample(i);
        return kernels_.look_lanes(x.data(), x.size(), rate_[i], regularizer_, right_[i], active, &beta_[i * lanes],
                                   worst_, weights(0));
    }

    // The same for one lane, with the sums of `look_lanes`.
    bool look_alone(std::size_t i, std::size_t lane, float y) {
        return width_ == 1 ? look_alone<1>(i, lane, y) : look_alone<lanes>(i, lane, y);
    }

    template <std::size_t width>
    bool look_alone(std::size_t i, std::size_t lane, float y) {
        const auto x = sample(i);
        float* const w = weights(lane);
        float sum[4] = {};
        std::size_t j = 0;
        for (; j + 4 <= x.size(); j += 4)
            for (std::size_t s = 0; s < 4; ++s)
                sum[s] += x[j + s].value * w[static_cast<std::size_t>(x[j + s].feature) * width];
        for (; j < x.size(); ++j) sum[0] += x[j].value * w[static_cast<std::size_t>(x[j].feature) * width];
        float& b = beta(i, lane);
        const float gradient = (y * ((sum[0] + sum[1]) + (sum[2] + sum[3])) - 1.0f) + regularizer_ * b;
        if (b <= 0 && gradient > 0) return true;
        worst_[lane] = std::max(worst_[lane], std::abs(gradient));
        const float next = std::max(0.0f, b - gradient * rate_[i]);
        const float change = y * (next - b);
        b = next;
        if (change != 0)
            for (const auto [feature, value] : x) w[static_cast<std::size_t>(feature) * width] += value * change;
        return false;
    }

    static void add(const std::vector<Line>& some, std::vector<Line>& to) {
        for (std::size_t i = 0; i < to.size(); ++i)
            for (std::size_t c = 0; c < lanes; ++c) to[i].lane[c] += some[i].lane[c];
    }

    // The point of every lane times what makes the dual least along it: 1/2 |w|^2 + beta^2 / (4 cost) - beta.
    void scale_best() {
        for (std::size_t c = 0; c < lanes_.size(); ++c) {
            double fall = 0, bend = 0;
            const auto every = [&](auto&& act) {
                for (std::size_t i = 0; i < shared_; ++i) act(beta(i, c));
                for (std::size_t i = lanes_[c].first; i < lanes_[c].end; ++i) act(beta(i, c));
            };
            every([&](float b) {
                fall += b;
                bend += static_cast<double>(regularizer_) * b * b;
            });
            float* const w = weights(c);
            for (const std::size_t f : rising_) bend += static_cast<double>(w[f * width_]) * w[f * width_];
            if (!(bend > 0)) continue;
            const auto factor = static_cast<float>(fall / bend);
            every([&](float& b) { b *= factor; });
            for (const std::size_t f : rising_) w[f * width_] *= factor;
        }
    }

    // The weights of the lanes that know something, in order of features.
    void put(std::uint32_t known, std::size_t part, std::span<RoutingParts> out) {
        const auto every = [&](auto&& act) {
            for (std::uint32_t left = known; left != 0; left &= left - 1)
                act(static_cast<std::size_t>(std::countr_zero(left)));
        };
        for (Part& part_of_lane : found_) part_of_lane.clear();
        every([&](std::size_t c) { found_[c].make_room(rising_.size()); });
        for (const std::size_t f : rising_) {
            const std::int32_t feature = local_->features()[f];
            const float threshold = thresholds_.empty() ? 0.0f : thresholds_[feature];
            every([&](std::size_t c) { found_[c].push(feature, weights(c)[f * width_], threshold, lanes_[c].g); });
        }
        every([&](std::size_t c) {
            const Row row = found_[c].row(0, found_[c].size());
            out[c][part] = {true, {row.index.begin(), row.index.end()}, {row.value.begin(), row.value.end()}};
        });
    }

    static constexpr std::size_t ahead = 64;  // rows that are asked for before they are read
    const Rows& contexts_;
    const RoutingProblems& problems_;
    std::span<const std::uint8_t> fold_;
    const RoutingSolver& solver_;
    std::span<const float> thresholds_;
    const Watch& watch_;
    const Kernels& kernels_;
    float regularizer_;
    std::optional<Renumbering> local_;  // as long as there are features: made when it is needed
    std::size_t width_ = lanes;         // numbers a feature in weights_, and a shared sample in beta_
    std::size_t shared_ = 0;            // samples that all lanes have; those of single lanes come behind them
    std::vector<Lane> lanes_;
    std::vector<std::int32_t> context_;        // of each sample
    std::vector<std::int32_t> part_, order_;   // the shared samples that count; those in the order of this pass
    std::vector<std::size_t> start_, rising_;  // where a sample's nonzeros start; features in their order
    std::vector<Nonzero> nonzeros_;
    std::vector<float> target_, rate_, beta_;    // of each sample; rate: 1 / (|x|^2 + 1 / (2 cost))
    std::vector<std::uint32_t> right_, active_;  // of each shared sample, the lanes
    std::vector<Line> weights_, sum_;
    float worst_[lanes] = {};
    std::array<Part, lanes> found_;  // of each lane
};

// Weights of all parts; those of `unknown` where a part knows nothing right. The answer depends neither on the number
// of threads nor on how functions are put into blocks. Blocks of much work come first.
inline std::array<Weights, routing_parts> fit_routing(const Rows& contexts, const RoutingProblems& problems,
                                                      std::span<const std::uint8_t> fold, const RoutingSolver& solver,
                                                      std::span<const float> thresholds, const Rows& unknown,
                                                      const Known& known, int threads, Watch& watch) {
    struct Block {
        std::size_t first, size;
        std::int64_t work;
    };
    const auto own = [&](std::size_t g) { return problems.own.samples(g); };
    std::vector<std::size_t> some;
    for (std::size_t g = 0; g < problems.size(); ++g)
        if (!known(g) && problems.any_right(g)) some.push_back(g);
    std::stable_sort(some.begin(), some.end(), [&](auto a, auto b) {
        return std::pair(problems.family[a], -own(a)) < std::pair(problems.family[b], -own(b));
    });
    std::vector<Block> blocks;
    for (std::size_t first = 0, end = 0; first < some.size(); first = end) {
        const std::size_t g = some[first];
        const auto shared = static_cast<std::int64_t>(problems.shared(g).size());
        Block block{first, 1, shared + own(g)};
        end = first + 1;
        // One with many samples of its own is better alone: reading a single lane takes longer where there are many.
        while (own(g) <= 2 * shared && problems.family[g] >= 0 && end < some.size() && block.size < lanes &&
               problems.family[some[end]] == problems.family[g]) {
            block.work += own(some[end]);
            ++block.size;
            ++end;
        }
        blocks.push_back(block);
    }
    std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.work > b.work; });
    std::vector<RoutingParts> found(some.size());
    std::vector<std::size_t> place(problems.size(), some.size());  // in `found`
    for (std::size_t i = 0; i < some.size(); ++i) place[some[i]] = i;
    std::vector<LaneBlock> workers;
    for (int i = worker_count(threads, blocks.size()); i > 0; --i)
        workers.emplace_back(contexts, problems, fold, solver, thresholds, watch);
    parallel_for(blocks.size(), threads, 1, [&](int worker, std::size_t i) {
        const Block& block = blocks[i];
        workers[worker].solve(std::span(some).subspan(block.first, block.size),
                              std::span(found).subspan(block.first, block.size));
    });
    workers.clear();
    std::array<Weights, routing_parts> out;
    RoutingParts none;
    for (std::size_t g = 0; g < problems.size(); ++g) {
        RoutingParts& mine = place[g] < found.size() ? found[place[g]] : none;
        for (std::size_t p = 0; p < routing_parts; ++p) {
            if (known(g))
                out[p].append(known.rows[p][g]);
            else
                out[p].append(mine[p].any ? Row{mine[p].index, mine[p].value} : unknown[g]);
        }
        mine = {};
    }
    return out;
}

}  // namespace treetop

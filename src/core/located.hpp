// Where the effective arms of a context lie in the tree: which of them stands for a given arm, shows some of a group,
// or meets what another policy shows. Knows nothing of chances.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "candidate.hpp"
#include "chances.hpp"
#include "decide.hpp"
#include "eligible.hpp"
#include "tree.hpp"

namespace treetop {

class Located {
protected:  // for Assessor (probability.hpp)
    explicit Located(const Layout& tree) : tree_(tree) {}

    // Where the effective arms lie, in the order of the tree, and which of them stands for each given arm; -1 for one
    // that cannot be shown.
    void locate(const Decider& decider, std::span<const Candidate> all, const Eligible& eligible,
                std::span<const std::int32_t> arms) {
        start_.resize(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) start_[i] = all[i].node ? tree_.begin[all[i].id] : all[i].position;
        sort_by_position(all);
        spot_.resize(all.size());
        first_.resize(all.size());
        last_.resize(all.size());
        count_.resize(all.size());
        each_.resize(all.size());
        mean_.resize(all.size());
        for (std::size_t o = 0; o < all.size(); ++o) {
            const std::int32_t i = order_[o];
            const Candidate& one = all[i];
            spot_[i] = static_cast<std::int32_t>(o);
            first_[o] = start_[i];
            last_[o] = one.node ? tree_.end[one.id] : start_[i] + 1;
            count_[o] = one.node ? decider.arms_below(one.id, eligible) : 1;
            each_[o] = 1.0 / count_[o];
            mean_[o] = expectation(one);
        }
        standing_.clear();
        for (const std::int32_t arm : arms) {
            if (arm < 0) break;
            const std::int32_t position = tree_.position_of[arm];
            const std::size_t o = from(position);
            const bool there = o < order_.size() && first_[o] <= position;
            standing_.push_back(there && eligible.count(position, position + 1) > 0 ? order_[o] : -1);
        }
    }

    // Searches find nodes before arms, and arms mostly in their order: merging the two is faster than sorting.
    void sort_by_position(std::span<const Candidate> all) {
        const auto ahead = [&](std::int32_t a, std::int32_t b) { return start_[a] < start_[b]; };
        order_.resize(all.size());
        unmerged_.resize(all.size());
        std::iota(unmerged_.begin(), unmerged_.end(), 0);
        const auto arms = std::find_if(unmerged_.begin(), unmerged_.end(), [&](auto i) { return !all[i].node; });
        std::sort(unmerged_.begin(), arms, ahead);
        if (!std::is_sorted(arms, unmerged_.end(), ahead)) std::sort(arms, unmerged_.end(), ahead);
        std::merge(unmerged_.begin(), arms, arms, unmerged_.end(), order_.begin(), ahead);
    }

    // The first in order that does not end before a position.
    std::size_t from(std::int32_t position) const {
        return static_cast<std::size_t>(std::upper_bound(last_.begin(), last_.end(), position) - last_.begin());
    }

    // Which effective arms may show any of the group of each given arm, a stretch of their order, and which part of
    // what they show that is: for slot and grouping. A group that is part of a node meets no other.
    void share_out(std::span<const Candidate> all, const Eligible& eligible, std::span<const std::int32_t> arms,
                   std::span<const std::int32_t> groups) {
        D_ = groups.size() / tree_.arms();
        shares_.clear();
        for (std::size_t s = 0; s < standing_.size(); ++s)
            for (std::size_t d = 0; d < D_; ++d) {
                const std::int32_t group = groups[d * tree_.arms() + static_cast<std::size_t>(arms[s])];
                const std::int32_t begin = tree_.begin[group], end = tree_.end[group];
                const std::size_t o = from(begin);
                const auto until = static_cast<std::size_t>(
                    std::lower_bound(first_.begin() + static_cast<std::ptrdiff_t>(o), first_.end(), end) -
                    first_.begin());
                const bool whole = o == until || (begin <= first_[o] && last_[o] <= end);
                shares_.push_back({o, until, whole ? 1.0 : part(all[order_[o]], begin, end, eligible)});
            }
    }

    // Of a node's eligible arms, those at some of its positions.
    double part(const Candidate& node, std::int32_t begin, std::int32_t end, const Eligible& eligible) const {
        const std::int32_t first = tree_.begin[node.id], last = tree_.end[node.id];
        return static_cast<double>(eligible.count(begin, end)) / eligible.below(node.id, first, last);
    }

    // Which piece of the served policy each effective arm meets, and how much of it: it lies in one, or some lie in it.
    void match(const Shown& beside) {
        const auto& pieces = beside.pieces;
        const auto none = static_cast<std::int32_t>(pieces.size());  // has chance 0
        piece_.resize(order_.size());
        part_.resize(order_.size());
        several_.clear();
        std::int32_t next = 0;
        for (std::size_t o = 0; o < order_.size(); ++o) {
            while (next < none && pieces[next].last <= first_[o]) ++next;
            std::int32_t end = next;
            while (end < none && pieces[end].first < last_[o]) ++end;
            const bool one = end - next == 1;
            piece_[o] = one ? next : none;
            part_[o] = one ? std::min(count_[o], pieces[next].count) * each_[o] : 0;
            if (end - next > 1) several_.push_back({o, next, end});
        }
    }

    static double expectation(const Candidate& candidate) {
        return std::clamp(static_cast<double>(candidate.score), 0.0, 1.0);
    }

    struct Share {
        std::size_t first, last;  // in the order of the tree
        double part;
    };
    struct Several {
        std::size_t one;
        std::int32_t first, last;  // pieces
    };

    const Layout& tree_;
    std::vector<std::int32_t> start_, spot_;      // of each candidate: its first position, where it stands in order_
    std::vector<std::int32_t> order_, unmerged_;  // of candidates by position
    std::vector<std::int32_t> first_, last_;      // the positions of their arms
    std::vector<std::int32_t> count_;             // how many of these are eligible, and the part that is one of them
    std::vector<double> each_;
    std::vector<double> mean_;            // scores in [0, 1]
    std::vector<std::int32_t> standing_;  // for each given arm, the candidate
    std::vector<std::int32_t> piece_;     // the one piece of the served policy that each in order meets
    std::vector<double> part_;            // of its arms, how many that has
    std::vector<Several> several_;        // those that meet several
    std::size_t D_ = 0;
    std::vector<Share> shares_;  // for slot and grouping
};

}  // namespace treetop

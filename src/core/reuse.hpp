// What searches for one context and one set of eligible arms take over from each other: scores and arms of leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "candidate.hpp"

namespace treetop {

// What a search takes over from the one before: nothing; nothing, but the next will; or its scores, which is right if
// context and eligible arms are the same.
enum class Reuse { none, later, last };

class SearchMemory {
public:
    void begin(Reuse reuse, std::size_t chunks) {
        on_ = reuse != Reuse::none;
        if (reuse != Reuse::later) return;
        arms_.clear();
        known_.resize(chunks);
        if (++stamp_ != 0) return;
        known_.assign(chunks, {});
        stamp_ = 1;
    }

    bool on() const { return on_; }
    bool knows(std::int32_t chunk) const { return on_ && known_[chunk].stamp == stamp_; }
    // Where the scores of a chunk that is known begin.
    std::size_t scored(std::int32_t chunk) const { return known_[chunk].scored; }
    void note(std::int32_t chunk, std::size_t scored) {
        if (on_) known_[chunk] = {stamp_, scored, 0, 0};
    }

    // The arms of a leaf, by its chunk; empty if they are not known.
    std::span<const Candidate> arms(std::int32_t chunk) const {
        if (!knows(chunk)) return {};
        return std::span(arms_).subspan(known_[chunk].first, known_[chunk].arms);
    }
    void keep(std::int32_t chunk, std::span<const Candidate> arms) {
        if (!on_) return;
        known_[chunk].first = arms_.size();
        known_[chunk].arms = arms.size();
        arms_.insert(arms_.end(), arms.begin(), arms.end());
    }

private:
    struct Known {
        std::uint32_t stamp = 0;
        std::size_t scored = 0, first = 0, arms = 0;
    };
    bool on_ = false;
    std::uint32_t stamp_ = 0;
    std::vector<Known> known_;  // of each chunk; right if it has the stamp
    std::vector<Candidate> arms_;
};

}  // namespace treetop

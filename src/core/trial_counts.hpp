// How often arms that were added have been shown by now, where a model's own counts are out of date. Knows no model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace treetop {

class TrialCounts {
public:
    // Arms rise strictly.
    TrialCounts(std::span<const std::int32_t> arms, std::span<const std::int32_t> counts)
        : arms_(arms.begin(), arms.end()), counts_(counts.begin(), counts.end()) {
        if (arms.size() != counts.size())
            throw std::invalid_argument(std::to_string(counts.size()) + " counts of trials for " +
                                        std::to_string(arms.size()) + " arms");
        for (std::size_t i = 0; i < arms_.size(); ++i)
            if (arms_[i] < 0 || counts_[i] < 0 || (i > 0 && arms_[i] <= arms_[i - 1]))
                throw std::invalid_argument("arm " + std::to_string(arms_[i]) + " with " + std::to_string(counts_[i]) +
                                            " trials: arms must rise from 0, and counts not be negative");
    }

    std::size_t size() const { return arms_.size(); }

    std::int32_t of(std::int32_t arm, std::int32_t otherwise) const {
        const auto found = std::lower_bound(arms_.begin(), arms_.end(), arm);
        return found != arms_.end() && *found == arm ? counts_[found - arms_.begin()] : otherwise;
    }

private:
    std::vector<std::int32_t> arms_, counts_;
};

}  // namespace treetop

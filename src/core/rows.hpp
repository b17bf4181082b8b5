// Borrowed compressed sparse rows, and the check that makes every later access safe.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace treetop {

struct Row {
    std::span<const std::int32_t> index;
    std::span<const float> value;
    std::size_t size() const { return index.size(); }
};

struct Rows {
    std::span<const std::int64_t> start;  // one more than there are rows
    std::span<const std::int32_t> index;
    std::span<const float> value;
    std::int64_t columns = 0;

    std::size_t size() const { return start.empty() ? 0 : start.size() - 1; }
    Row operator[](std::size_t i) const {
        const auto first = static_cast<std::size_t>(start[i]);
        const auto count = static_cast<std::size_t>(start[i + 1]) - first;
        return {index.subspan(first, count), value.subspan(first, count)};
    }
};

[[noreturn]] inline void refuse(const std::string& what, std::size_t row, const std::string& why) {
    throw std::invalid_argument(what + " row " + std::to_string(row) + ": " + why);
}

// Throws if not every row lies within the indices and values.
inline void check_pointers(const Rows& rows, const std::string& what) {
    if (rows.start.empty() || rows.start.front() != 0)
        throw std::invalid_argument(what + ": row pointers must begin with 0");
    if (rows.index.size() != rows.value.size() || rows.start.back() != static_cast<std::int64_t>(rows.index.size()))
        throw std::invalid_argument(what + ": row pointers end at " + std::to_string(rows.start.back()) +
                                    ", but there are " + std::to_string(rows.index.size()) + " indices and " +
                                    std::to_string(rows.value.size()) + " values");
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (rows.start[i + 1] < rows.start[i])
            refuse(
                what, i,
                "row pointers fall from " + std::to_string(rows.start[i]) + " to " + std::to_string(rows.start[i + 1]));
}

// Throws with the first offence: row pointers that do not fit, a column out of range, a value that is not finite. Says
// whether the columns rise strictly in every row; what needs that asks for it with validate().
inline bool inspect(const Rows& rows, const std::string& what, bool must_rise = false) {
    const auto fail = [&](std::size_t row, const std::string& why) { refuse(what, row, why); };
    if (rows.columns < 0 || rows.columns > std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument(what + ": " + std::to_string(rows.columns) + " columns, outside [0, 2147483647]");
    check_pointers(rows, what);
    bool rising = true;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        std::int64_t last = -1;
        for (auto j = rows.start[i]; j < rows.start[i + 1]; ++j) {
            const std::int64_t column = rows.index[j];
            if (column < 0 || column >= rows.columns)
                fail(i, "index " + std::to_string(column) + " is outside [0, " + std::to_string(rows.columns) + ")");
            if (!std::isfinite(rows.value[j]))
                fail(i, "value " + std::to_string(rows.value[j]) + " at index " + std::to_string(column) +
                            " is not finite");
            if (column <= last) {
                if (must_rise)
                    fail(i, "index " + std::to_string(column) + " after " + std::to_string(last) +
                                "; indices must rise strictly");
                rising = false;
            }
            last = column;
        }
    }
    return rising;
}

inline void validate(const Rows& rows, const std::string& what) { inspect(rows, what, true); }

// Features that occur in a few rows, renumbered 0..m-1 in order of appearance, so that vectors over them are small and
// dense. Clearing costs what was touched.
class Renumbering {
public:
    explicit Renumbering(std::int64_t columns) : local_(columns, -1) {}

    std::int32_t operator()(std::int32_t feature) {
        if (local_[feature] < 0) {
            local_[feature] = static_cast<std::int32_t>(features_.size());
            features_.push_back(feature);
        }
        return local_[feature];
    }
    void clear() {
        for (const std::int32_t f : features_) local_[f] = -1;
        features_.clear();
    }
    std::size_t size() const { return features_.size(); }
    std::span<const std::int32_t> features() const { return features_; }

private:
    std::vector<std::int32_t> local_;
    std::vector<std::int32_t> features_;
};

}  // namespace treetop

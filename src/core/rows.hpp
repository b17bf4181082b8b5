// Borrowed compressed sparse rows, and the check that makes every later access safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel.hpp"

namespace treetop {

struct Row {
    std::span<const std::int32_t> index;
    std::span<const float> value;
    std::size_t size() const { return index.size(); }
};

struct Nonzero {
    std::int32_t feature;
    float value;
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

// Rows are scattered over memory: with all of them asked for at once, one wait does for all.
inline void ask_for(const Row& row) {
#if defined(__GNUC__)
    for (std::size_t j = 0; j < row.size(); j += 16) {
        __builtin_prefetch(&row.index[j]);
        __builtin_prefetch(&row.value[j]);
    }
#else
    (void)row;
#endif
}

// What the core takes for granted about single numbers. The negation refuses NaN as well.
template <class T>
void within(const char* name, T value, T low, T high) {
    if (!(value >= low && value <= high)) {
        std::ostringstream text;
        text << name << " is " << value << ", outside [" << low << ", " << high << "]";
        throw std::invalid_argument(text.str());
    }
}

[[noreturn]] inline void refuse(const std::string& what, std::size_t row, const std::string& why) {
    throw std::invalid_argument(what + " row " + std::to_string(row) + ": " + why);
}

struct Clean {
    bool valid, rising;
};

// Whether all columns are in range and all values finite, and whether columns rise strictly in every row. Flat passes
// over the entries, a piece a thread: models of gigabytes are opened with them.
inline Clean check_entries(const Rows& rows) {
    constexpr std::size_t piece = std::size_t{1} << 18;
    const std::size_t n = rows.index.size();
    const auto columns = static_cast<std::uint32_t>(rows.columns);
    std::atomic<bool> valid{true};
    std::atomic<std::size_t> falls{0};
    parallel_for((n + piece - 1) / piece, n < 4 * piece ? 1 : 0, 1, [&](int, std::size_t part) {
        const std::size_t first = part * piece, end = std::min(n, first + piece);
        const std::int32_t* index = rows.index.data();
        std::uint32_t wrong = 0, falling = 0;
        for (std::size_t j = first; j < end; ++j) {
            const auto bits = std::bit_cast<std::uint32_t>(rows.value[j]);
            wrong |= static_cast<std::uint32_t>(static_cast<std::uint32_t>(index[j]) >= columns) |
                     static_cast<std::uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
        }
        for (std::size_t j = std::max<std::size_t>(first, 1); j < end; ++j) falling += index[j] <= index[j - 1];
        if (wrong) valid = false;
        falls += falling;
    });
    std::size_t between = 0;  // falls from one row to the next do not count
    for (std::size_t i = 0; i + 1 < rows.start.size(); ++i) {
        const auto j = static_cast<std::size_t>(rows.start[i]);
        if (j > 0 && rows.start[i + 1] > rows.start[i]) between += rows.index[j] <= rows.index[j - 1];
    }
    return {valid, falls == between};
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
    if (const Clean clean = check_entries(rows); clean.valid && (clean.rising || !must_rise)) return clean.rising;
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

// The owner's measure between a context and an item: cosine, inner product or distance of vectors. The context's vector
// is a stretch of its features, or what a linear map makes of that where contexts lie in a space of their own. It may
// rank the nodes of a search, and be a component of the scores of arms.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "rows.hpp"

namespace treetop {

struct Measure {
    enum class Kind { cosine, inner_product, euclidean };
    Kind kind = Kind::cosine;
    std::int32_t first = 0;          // the columns first to first + dims of a context are its vector
    std::size_t dims = 0;            // 0: there is no measure
    double scale = 1;                // how long vectors are, or how far apart: what makes slacks comparable
    bool routes = false;             // whether routing rows are centres that are compared by this measure
    std::span<const float> vectors;  // of arms by id, `dims` each; none: scores know nothing of the measure
    std::vector<float> means;        // rewards at evenly spaced measures in [low, high], linear in between and beyond
    double low = 0, high = 1;
    std::size_t context_dims = 0;  // of the context's vector; `dims` unless there is a map
    std::span<const float> map;    // (context_dims, dims): a context's vector times it lies in the items' space

    bool scores() const { return !vectors.empty(); }

    struct Squares {
        double given = 0;   // the squared length of the context's own vector
        double mapped = 0;  // of what is compared with items
    };

    // The vector of a context, in the space of the items, into `out`.
    Squares take(const Row& x, std::vector<float>& out) const {
        out.assign(dims, 0.0f);
        Squares square;
        for (std::size_t j = 0; j < x.size(); ++j) {
            const auto at = static_cast<std::uint32_t>(x.index[j] - first);
            if (at >= context_dims) continue;
            const float value = x.value[j];
            square.given += static_cast<double>(value) * value;
            if (map.empty()) {
                out[at] = value;
                continue;
            }
            const float* row = map.data() + at * dims;
            for (std::size_t i = 0; i < dims; ++i) out[i] += value * row[i];
        }
        if (map.empty()) return {square.given, square.given};
        for (const float value : out) square.mapped += static_cast<double>(value) * value;
        return square;
    }

    // How far a node's centre is from the context, by what its routing row says of [x; 1]. Cosine and inner product: 1
    // less the product with a context of length 1; distance: |x|^2 - 2 (c . x - |c|^2 / 2).
    double slack(double dot, double square) const {
        if (kind == Kind::euclidean) return std::sqrt(std::max(0.0, square - 2 * dot)) / scale;
        return std::max(0.0, 1.0 - (square > 0 ? dot / (std::sqrt(square) * scale) : 0.0));
    }

    // The measure, of what `products` says of two vectors; `square` is of the context's own. A map's lengths mean
    // something: how sure it is.
    double value(float product, double square) const {
        if (kind == Kind::euclidean) return -std::sqrt(static_cast<double>(product));
        if (kind == Kind::inner_product) return product;
        return square > 0 ? product / std::sqrt(square) : 0.0;
    }

    // What such a measure is expected to bring.
    float reward(double measure) const {
        if (!std::isfinite(measure))
            throw std::invalid_argument("the measure of an item is " + std::to_string(measure) +
                                        ": context or item vector is too large");
        const double place = (measure - low) / (high - low) * static_cast<double>(means.size() - 1);
        const auto last = static_cast<double>(means.size() - 2);
        const auto i = static_cast<std::size_t>(std::clamp(std::floor(place), 0.0, last));
        const auto part = static_cast<float>(place - static_cast<double>(i));
        return means[i] + part * (means[i + 1] - means[i]);
    }
};

inline void check_measure(const Measure& measure, std::int64_t columns, std::size_t arms) {
    within<std::int64_t>("the first column of the vector", measure.first, 0, columns - 1);
    within<std::int64_t>("the dimensions of the vector", static_cast<std::int64_t>(measure.context_dims), 1,
                         columns - 1 - measure.first);
    if (measure.map.empty() ? measure.context_dims != measure.dims
                            : measure.map.size() != measure.context_dims * measure.dims)
        throw std::invalid_argument(std::to_string(measure.map.size()) + " numbers are no map from " +
                                    std::to_string(measure.context_dims) + " to " + std::to_string(measure.dims) +
                                    " dimensions");
    if (!(measure.scale > 0 && std::isfinite(measure.scale)))
        throw std::invalid_argument("the scale of the measure is " + std::to_string(measure.scale));
    if (!measure.scores()) return;
    if (measure.vectors.size() != arms * measure.dims)
        throw std::invalid_argument(std::to_string(measure.vectors.size()) + " numbers are not vectors of " +
                                    std::to_string(measure.dims) + " for " + std::to_string(arms) + " arms");
    if (measure.means.size() < 2) throw std::invalid_argument("the measure needs at least 2 means");
    for (const float mean : measure.means)
        if (!std::isfinite(mean)) throw std::invalid_argument("a mean of the measure is " + std::to_string(mean));
    if (!(measure.low < measure.high && std::isfinite(measure.high - measure.low)))
        throw std::invalid_argument("the range of the measure is [" + std::to_string(measure.low) + ", " +
                                    std::to_string(measure.high) + "]");
}

}  // namespace treetop

// Labelled rows from a hidden hierarchy of topics. Arms stand in topics, topics under topics; an arm and each topic own
// a few features ("words"). A row takes its labels by popularity from one topic and, less often, from its surroundings,
// and its words from the paths of its labels and from a background. Made up: no set of the world has exactly this
// shape.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "rng.hpp"

namespace treetop {

struct Shape {
    std::int64_t arms = 0, features = 0, topics = 0;
    double nonzeros = 0, labels = 0;  // of a row, on average
    double zipf = 0;                  // the arm of popularity rank r has weight r^-zipf
    double noise = 0;                 // share of the words that come from the background
    std::uint64_t seed = 0;
};

inline void check_shape(const Shape& shape, std::int64_t init, std::int64_t rows) {
    const auto within = [](const char* name, auto value, auto low, auto high) {
        if (value >= low && value <= high) return;
        std::ostringstream text;
        text << name << " is " << value << ", outside [" << low << ", " << high << "]";
        throw std::invalid_argument(text.str());
    };
    constexpr std::int64_t zero = 0, one = 1, most = 1 << 30;
    within("arms", shape.arms, one, most);
    within("features", shape.features, one, most);
    within("topics", shape.topics, one, shape.arms);
    within("nonzeros", shape.nonzeros, 1.0, static_cast<double>(shape.features));
    within("labels", shape.labels, 1.0, static_cast<double>(shape.arms));
    within("zipf", shape.zipf, 0.0, 10.0);
    within("noise", shape.noise, 0.0, 1.0);
    within("init", init, zero, most);
    within("rows", rows, zero, most);
}

// How often each number of [0, n) was added. Clearing costs what was touched.
class Tally {
public:
    explicit Tally(std::int64_t n) : count_(static_cast<std::size_t>(n)) {}

    bool add(std::int32_t i) {  // whether it is new
        if (count_[i]++ > 0) return false;
        seen_.push_back(i);
        return true;
    }
    // The next number, in a circle, that is new. There must be one.
    void add_near(std::int32_t i) {
        while (count_[i] > 0) i = i + 1 < static_cast<std::int32_t>(count_.size()) ? i + 1 : 0;
        add(i);
    }
    std::int32_t count(std::int32_t i) const { return count_[i]; }
    std::size_t size() const { return seen_.size(); }
    std::vector<std::int32_t>& seen() { return seen_; }
    void clear() {
        for (const std::int32_t i : seen_) count_[i] = 0;
        seen_.clear();
    }

private:
    std::vector<std::int32_t> count_;
    std::vector<std::int32_t> seen_;
};

inline std::vector<std::int32_t> shuffled(std::int64_t n, std::uint64_t key) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) order[i] = static_cast<std::int32_t>(i);
    Stream stream(key);
    for (std::int64_t i = n - 1; i > 0; --i) std::swap(order[i], order[stream.below(i + 1)]);
    return order;
}

// The hidden hierarchy. Arms stand in a row of positions; level 0 is the arms themselves, level 1 the topics, each
// further level joins `fan` neighbours, and the level above the last is the root: every node is a range of positions.
class World {
public:
    explicit World(const Shape& shape)
        : shape_(shape),
          arm_at_(shuffled(shape.arms, derive(shape.seed, 1))),
          feature_at_(shuffled(shape.features, derive(shape.seed, 2))) {
        while (nodes(levels_) > fan) ++levels_;
        const double words = shape.nonzeros * (1 - shape.noise);
        own_words_ = bounded(words / shape.labels, 3, 24);
        topic_words_ = bounded(words / 2, 8, 400);
        set_popularity();
        set_weights();
    }

    const Shape& shape() const { return shape_; }
    std::int32_t arm_at(std::int32_t position) const { return arm_at_[position]; }
    double weight(std::int32_t feature) const { return weight_[feature]; }

    // Positions of `wanted` distinct arms, by popularity in the surroundings of the first.
    void draw_labels(std::size_t wanted, Stream& stream, Tally& positions) const {
        const std::int32_t first = draw_position(root(), 0, stream);
        const std::int64_t topic = topic_of(first);
        positions.add(first);
        while (positions.size() < wanted) {
            int level = 1;
            while (level < root() && stream.uniform() < drift) ++level;
            std::int32_t position = draw_position(level, topic, stream);
            for (int tries = 1; !positions.add(position); ++tries) {
                if (tries == 4 * (root() + 1)) {
                    positions.add_near(position);
                    break;
                }
                if (tries % 4 == 0) level = std::min(level + 1, root());
                position = draw_position(level, topic, stream);
            }
        }
    }

    // `wanted` distinct features; those drawn again count more.
    void draw_words(std::size_t wanted, const std::vector<std::int32_t>& positions, Stream& stream,
                    Tally& words) const {
        for (std::size_t left = 64 + 8 * wanted; words.size() < wanted && left > 0; --left)
            words.add(draw_word(positions, stream));
        while (words.size() < wanted) words.add_near(draw_word(positions, stream));
    }

private:
    static constexpr std::int64_t fan = 8;
    static constexpr double drift = 0.25;     // chance that a label comes from one level further up, and again
    static constexpr double own_share = 0.4;  // of the words of a label's path, those of the arm itself

    static std::int64_t bounded(double value, double low, double high) {
        return static_cast<std::int64_t>(std::lround(std::clamp(value, low, high)));
    }

    int root() const { return levels_ + 1; }
    std::int64_t stride(int level) const { return std::int64_t{1} << (3 * (level - 1)); }  // topics in a node
    std::int64_t nodes(int level) const { return (shape_.topics + stride(level) - 1) / stride(level); }
    std::int64_t first_of(std::int64_t topic) const {
        return std::min(topic, shape_.topics) * shape_.arms / shape_.topics;
    }
    std::int64_t topic_of(std::int32_t position) const {
        return ((position + std::int64_t{1}) * shape_.topics - 1) / shape_.arms;
    }
    std::pair<std::int64_t, std::int64_t> range(int level, std::int64_t node) const {
        if (level == root()) return {0, shape_.arms};
        return {first_of(node * stride(level)), first_of((node + 1) * stride(level))};
    }

    std::int32_t draw_position(int level, std::int64_t topic, Stream& stream) const {
        const auto [begin, end] = range(level, level == root() ? 0 : topic / stride(level));
        const double at = below_[begin] + stream.uniform() * (below_[end] - below_[begin]);
        const auto next = std::upper_bound(below_.begin() + begin + 1, below_.begin() + end, at);
        return static_cast<std::int32_t>(next - below_.begin() - 1);
    }

    // Word j of a node of a level: hashed, so that nothing is stored and nodes share words by chance.
    std::int32_t word(std::uint64_t level_key, std::int64_t node, std::uint64_t j) const {
        const std::uint64_t hash = derive(derive(level_key, static_cast<std::uint64_t>(node)), j);
        return static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(shape_.features));
    }
    std::uint64_t key_of(int level) const { return derive(shape_.seed, 16 + static_cast<std::uint64_t>(level)); }

    std::int32_t draw_word(const std::vector<std::int32_t>& positions, Stream& stream) const {
        if (stream.uniform() < shape_.noise) return draw_background(stream);
        const std::int32_t position = positions[stream.below(positions.size())];
        if (stream.uniform() < own_share) return word(key_of(0), position, stream.below(own_words_));
        const int level = 1 + static_cast<int>(stream.below(levels_));
        return word(key_of(level), topic_of(position) / stride(level), stream.below(topic_words_));
    }

    // Zipf with exponent 1 over all features: rank r has probability log((r + 2) / (r + 1)) / log(features + 1).
    std::int32_t draw_background(Stream& stream) const {
        const double rank = std::exp(stream.uniform() * std::log(static_cast<double>(shape_.features) + 1)) - 1;
        return feature_at_[std::min(shape_.features - 1, static_cast<std::int64_t>(rank))];
    }

    // below_[p] is the popularity of all positions before p; the whole is 1.
    void set_popularity() {
        const auto rank = shuffled(shape_.arms, derive(shape_.seed, 3));
        below_.assign(static_cast<std::size_t>(shape_.arms) + 1, 0.0);
        for (std::int64_t p = 0; p < shape_.arms; ++p)
            below_[p + 1] = below_[p] + std::pow(rank[p] + 1.0, -shape_.zipf);
        for (double& mass : below_) mass /= below_.back();
    }

    // Inverse document frequency, 1 - log(chance that a row has the feature), from the model itself rather than from
    // the rows, so that a row does not depend on how many others there are.
    void set_weights() {
        std::vector<double> chance(static_cast<std::size_t>(shape_.features));
        const double spread = std::log(static_cast<double>(shape_.features) + 1);
        for (std::int64_t r = 0; r < shape_.features; ++r)
            chance[feature_at_[r]] = shape_.noise * std::log((r + 2.0) / (r + 1.0)) / spread;
        const auto add = [&](int level, std::int64_t node, double mass, std::int64_t words) {
            for (std::int64_t j = 0; j < words; ++j)
                chance[word(key_of(level), node, static_cast<std::uint64_t>(j))] +=
                    (1 - shape_.noise) * mass / static_cast<double>(words);
        };
        for (std::int64_t p = 0; p < shape_.arms; ++p) add(0, p, own_share * (below_[p + 1] - below_[p]), own_words_);
        for (int level = 1; level <= levels_; ++level)
            for (std::int64_t node = 0; node < nodes(level); ++node) {
                const auto [begin, end] = range(level, node);
                add(level, node, (1 - own_share) / levels_ * (below_[end] - below_[begin]), topic_words_);
            }
        weight_.resize(chance.size());
        for (std::size_t f = 0; f < chance.size(); ++f)
            weight_[f] = 1 - std::log(-std::expm1(-shape_.nonzeros * std::max(chance[f], 1e-9)));
    }

    Shape shape_;
    std::vector<std::int32_t> arm_at_, feature_at_;  // of a position, of a background rank
    int levels_ = 1;
    std::int64_t own_words_ = 0, topic_words_ = 0;
    std::vector<double> below_, weight_;
};

struct Synthetic {
    std::vector<std::int64_t> x_start, y_start;
    std::vector<std::int32_t> x_index, y_index;
    std::vector<float> x_value;
};

// How long a row is: uniform between mean - width and mean + width, rounded by chance so that the mean is the one
// asked.
inline std::int64_t draw_length(double mean, double width, double limit, Stream& stream) {
    width = std::min({width, mean - 1, limit - mean});
    const double length = mean + width * (2 * stream.uniform() - 1) + stream.uniform();
    return static_cast<std::int64_t>(std::min(length, limit));
}

// One thread's way to write rows.
class RowWriter {
public:
    explicit RowWriter(const World& world)
        : world_(world), positions_(world.shape().arms), words_(world.shape().features) {}

    void write(Stream stream, std::size_t i, Synthetic& out) {
        const auto labels = out.y_start[i + 1] - out.y_start[i], words = out.x_start[i + 1] - out.x_start[i];
        positions_.clear();
        world_.draw_labels(static_cast<std::size_t>(labels), stream, positions_);
        words_.clear();
        world_.draw_words(static_cast<std::size_t>(words), positions_.seen(), stream, words_);
        const auto label = out.y_index.begin() + out.y_start[i];
        std::transform(positions_.seen().begin(), positions_.seen().end(), label,
                       [&](std::int32_t position) { return world_.arm_at(position); });
        std::sort(label, label + labels);
        std::sort(words_.seen().begin(), words_.seen().end());
        std::copy(words_.seen().begin(), words_.seen().end(), out.x_index.begin() + out.x_start[i]);
        write_values(out.x_value.begin() + out.x_start[i]);
    }

private:
    // tf-idf, (1 + log count) * weight, scaled to length 1.
    void write_values(std::vector<float>::iterator value) {
        values_.clear();
        double square = 0;
        for (const std::int32_t f : words_.seen()) {
            const int count = words_.count(f);
            values_.push_back((count == 1 ? 1 : 1 + std::log(static_cast<double>(count))) * world_.weight(f));
            square += values_.back() * values_.back();
        }
        for (const double v : values_) *value++ = static_cast<float>(v / std::sqrt(square));
    }

    const World& world_;
    Tally positions_, words_;
    std::vector<double> values_;
};

// `init` rows, then `rows` rows, each from its own key: neither number changes a row of the other part.
inline Synthetic synthesize(const Shape& shape, std::int64_t init, std::int64_t rows, int threads) {
    check_shape(shape, init, rows);
    const auto n = static_cast<std::size_t>(init + rows);
    const auto key = [&](std::size_t i) {
        const auto row = static_cast<std::int64_t>(i);
        return row < init ? derive(derive(shape.seed, 4), i) : derive(derive(shape.seed, 5), i - init);
    };
    Synthetic out;
    out.x_start.assign(n + 1, 0);
    out.y_start.assign(n + 1, 0);
    for (std::size_t i = 0; i < n; ++i) {
        Stream stream(derive(key(i), 0));
        const auto labels = draw_length(shape.labels, shape.labels, static_cast<double>(shape.arms), stream);
        const auto words = draw_length(shape.nonzeros, shape.nonzeros / 2, static_cast<double>(shape.features), stream);
        out.y_start[i + 1] = out.y_start[i] + labels;
        out.x_start[i + 1] = out.x_start[i] + words;
    }
    out.y_index.resize(static_cast<std::size_t>(out.y_start.back()));
    out.x_index.resize(static_cast<std::size_t>(out.x_start.back()));
    out.x_value.resize(out.x_index.size());
    const World world(shape);
    constexpr std::size_t grain = 256;
    std::vector<RowWriter> writers(worker_count(threads, (n + grain - 1) / grain), RowWriter(world));
    parallel_for(n, threads, grain,
                 [&](int worker, std::size_t i) { writers[worker].write(Stream(derive(key(i), 1)), i, out); });
    return out;
}

}  // namespace treetop

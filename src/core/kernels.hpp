// The two loops in which a decision spends its time. Included by simd.hpp once per instruction set, each time within a
// namespace of its own that has `match_narrow` and `add_mapped`; hence no include guard.
//
// All sets give the same bytes: a slot's sum runs over the features in ascending order, one product and one sum at a
// time, in float32.

// Where the lists of the context's features are; those that are absent leave nothing behind. Whether a feature is there
// cannot be foreseen: no branch asks for it, but one whether to look into the next line, which is rare. First all lines
// are compared, which is all that an absent feature costs; then the lists of those that were found. What a line says is
// believed only as far as the chunk reaches.
inline std::size_t locate(const Chunk& chunk, const Query& x, Hit* out) {
    const bool narrow = chunk.form == Entry::Form::narrow;
    const Lists lists(chunk.slots);
    std::size_t found = 0, hits = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
        std::uint32_t number = x.scatter.line(x.scattered[j], chunk.n_lines);
        const std::byte* line = chunk.lines + std::size_t{number} * line_bytes;
        const auto match = [&] {
            return narrow ? match_narrow(line, x.scattered[j]) : match_wide(line, x.scattered[j]);
        };
        std::uint32_t places = match();
        const bool spilled = narrow ? spilled_narrow(line) : spilled_wide(line);
        if (spilled & (places == 0) & (number + 1 < chunk.n_lines)) [[unlikely]] {
            ++number;
            line += line_bytes;
            places = match();
        }
        out[found] = {number, places, x.value[j]};
        found += places != 0;
    }
    for (std::size_t i = 0; i < found; ++i) {
        const std::byte* line = chunk.lines + out[i].first * line_bytes;
        const auto place = static_cast<std::uint32_t>(std::countr_zero(out[i].n));
        std::uint64_t first = 0;
        const std::uint32_t n = narrow ? list_narrow(line, place, lists, first) : list_wide(line, place, lists, first);
        const std::uint64_t bytes = lists.bytes(n);
        if (first + bytes > chunk.size) continue;
        const std::byte* list = chunk.lists + first;
        const std::byte* last = list + (bytes > 0 ? bytes - 1 : 0);
        prefetch(list);
        prefetch(std::min(list + line_bytes, last));
        prefetch(std::min(list + 2 * line_bytes, last));
        for (std::uint64_t at = 3 * line_bytes; at < bytes; at += line_bytes) prefetch(list + at);
        out[hits] = {first, n, out[i].value};
        hits += n > 0;
    }
    return hits;
}

inline void add_row(const float* weights, std::uint32_t slots, float value, float* score) {
    for (std::uint32_t s = 0; s < slots; ++s) score[s] += value * weights[s];
}

template <class Slot>
void add_few(const std::byte* list, std::uint32_t n, std::uint32_t slots, float value, float* score) {
    const std::byte* weights = list + n * sizeof(Slot);
    for (std::uint32_t i = 0; i < n; ++i) {
        const auto slot = read<Slot>(list + i * sizeof(Slot));
        if (sizeof(Slot) < 4 || slot < slots) score[slot] += value * read<float>(weights + i * sizeof(float));
    }
}

// score[slot] += x . w(slot) for every slot.
inline void add(const Chunk& chunk, const Hit* hits, std::size_t n, float* score) {
    const Lists lists(chunk.slots);
    if (lists.bitmap == 1) return add_all_mapped<1>(chunk.lists, hits, n, score);
    if (lists.bitmap == 2) return add_all_mapped<2>(chunk.lists, hits, n, score);
    for (const Hit* hit = hits; hit < hits + n; ++hit) {
        const std::byte* list = chunk.lists + hit->first;
        if (hit->n >= lists.mapped)
            add_mapped(list, lists.bitmap, hit->value, score);
        else if (lists.width == 1)
            add_few8(list, hit->n, hit->value, score);
        else if (lists.width == 2)
            add_few<std::uint16_t>(list, hit->n, chunk.slots, hit->value, score);
        else
            add_few<std::uint32_t>(list, hit->n, chunk.slots, hit->value, score);
    }
}

// The sums of `lanes` slots of whole rows, from `first` on, stay in registers. What is read behind the slots of a row
// belongs to the next one and is dropped; the last rows have none behind them.
template <std::size_t lanes>
void add_columns(const Chunk& chunk, const Query& x, std::uint32_t first, float* score) {
    const std::size_t kept = std::min<std::size_t>(lanes, chunk.slots - first);
    const std::byte* end = chunk.lists + chunk.size;
    float sum[lanes] = {}, last[lanes] = {};
    std::copy_n(score + first, kept, sum);
    for (std::size_t j = 0; j < x.size(); ++j) {
        const auto* weights = reinterpret_cast<const float*>(chunk.row(x.index[j])) + first;
        if (reinterpret_cast<const std::byte*>(weights + lanes) > end) [[unlikely]] {
            std::copy_n(weights, kept, last);
            weights = last;
        }
        for (std::size_t l = 0; l < lanes; ++l) sum[l] += x.value[j] * weights[l];
    }
    std::copy_n(sum, kept, score + first);
}

inline void add_own(const Chunk& chunk, const Query& x, float* score) {
    if (chunk.slots > 64) {
        for (std::size_t j = 0; j < x.size(); ++j)
            add_row(reinterpret_cast<const float*>(chunk.row(x.index[j])), chunk.slots, x.value[j], score);
        return;
    }
    std::uint32_t first = 0;
    for (; chunk.slots - first > 32; first += 32) add_columns<32>(chunk, x, first, score);
    switch ((chunk.slots - first + 7) / 8) {
        case 1:
            return add_columns<8>(chunk, x, first, score);
        case 2:
            return add_columns<16>(chunk, x, first, score);
        case 3:
            return add_columns<24>(chunk, x, first, score);
        case 4:
            return add_columns<32>(chunk, x, first, score);
        default:
            return;
    }
}

// The nearest of `k` centres for each of `n` points: the largest x . c - offset, of equal ones the first. Centres lie
// 32 side by side, feature by feature (vector_tree.hpp).
inline void nearest(const float* points, std::size_t n, std::size_t d, const float* blocks, const float* offset,
                    std::size_t k, std::int32_t* label) {
    constexpr std::size_t lanes = 32, most = 64;
    float best[most];
    for (std::size_t i = 0; i < n; ++i) {
        best[i] = -std::numeric_limits<float>::infinity();
        label[i] = 0;
    }
    for (std::size_t first = 0; first < k; first += lanes, blocks += d * lanes) {
        for (std::size_t i = 0; i < n; ++i) {
            const float* x = points + i * d;
            float sum[lanes];
            for (std::size_t c = 0; c < lanes; ++c) sum[c] = -offset[first + c];
            for (std::size_t j = 0; j < d; ++j)
                for (std::size_t c = 0; c < lanes; ++c) sum[c] += x[j] * blocks[j * lanes + c];
            for (std::size_t c = 0; c < lanes; ++c) {
                if (!(sum[c] > best[i])) continue;
                best[i] = sum[c];
                label[i] = static_cast<std::int32_t>(first + c);
            }
        }
    }
}

// The dot product of two vectors of d numbers, or with `apart` their squared distance. Sixteen sums side by side, added
// up in a fixed order: the same bytes with every instruction set.
template <bool apart>
float product(const float* a, const float* b, std::size_t d) {
    constexpr std::size_t lanes = 16;
    float sum[lanes] = {};
    const auto term = [&](std::size_t j) { return apart ? (a[j] - b[j]) * (a[j] - b[j]) : a[j] * b[j]; };
    std::size_t j = 0;
    for (; j + lanes <= d; j += lanes)
        for (std::size_t c = 0; c < lanes; ++c) sum[c] += term(j + c);
    for (std::size_t c = 0; j + c < d; ++c) sum[c] += term(j + c);
    for (std::size_t half = lanes / 2; half > 0; half /= 2)
        for (std::size_t c = 0; c < half; ++c) sum[c] += sum[c + half];
    return sum[0];
}

// What `products` reads for arms at some places: the vectors of arms lie in the order of their ids.
inline void products(const float* x, const float* vectors, std::size_t d, const std::int32_t* arms, std::size_t n,
                     bool apart, float* out) {
    constexpr std::size_t ahead = 4;
    for (std::size_t i = 0; i < n; ++i) {
        if (i + ahead < n) {
            const auto* next =
                reinterpret_cast<const std::byte*>(vectors + static_cast<std::size_t>(arms[i + ahead]) * d);
            for (std::size_t at = 0; at < std::min<std::size_t>(d * sizeof(float), 16 * line_bytes); at += line_bytes)
                prefetch(next + at);
        }
        const float* v = vectors + static_cast<std::size_t>(arms[i]) * d;
        out[i] = apart ? product<true>(x, v, d) : product<false>(x, v, d);
    }
}

// Log routing scores and pooled means of arms below one parent, by what their own routing functions say (Searcher).
inline void pool(const float* dots, std::size_t n, double above, std::span<const float> means, double* routes,
                 float* out) {
    for (std::size_t i = 0; i < n; ++i) routes[i] = above + log_linear(dots[i]);
    for (std::size_t i = 0; i < n; ++i) out[i] = mean_at(means, routes[i]);
}

// One step of coordinate descent along a sample that many routing functions have (lanes.hpp), for those that are
// `active`: y x.w - 1 + D beta is the gradient, whose largest magnitude `worst` keeps. Four sums a lane, so that none
// waits for another. Says which lanes are at rest.
inline std::uint32_t look_lanes(const Nonzero* x, std::size_t n, float rate, float D, std::uint32_t right,
                                std::uint32_t active, float* beta, float* worst, float* weights) {
    Lanes sum[4] = {};
    const auto at = [&](std::size_t j) { return weights + static_cast<std::size_t>(x[j].feature) * lanes; };
    std::size_t i = 0;
    Lanes w;
    for (; i + 4 <= n; i += 4)
        for (std::size_t s = 0; s < 4; ++s) {
            std::memcpy(&w, at(i + s), sizeof(w));
            sum[s] = sum[s] + x[i + s].value * w;
        }
    for (; i < n; ++i) {
        std::memcpy(&w, at(i), sizeof(w));
        sum[0] = sum[0] + x[i].value * w;
    }
    const Lanes total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    float product[lanes], sign[lanes], gradient[lanes], change[lanes];
    std::memcpy(product, &total, sizeof(total));
    for (std::uint32_t c = 0; c < lanes; ++c) {
        sign[c] = right & 1u << c ? 1.0f : -1.0f;
        gradient[c] = (sign[c] * product[c] - 1.0f) + D * beta[c];
    }
    std::uint32_t rests = 0;
    for (std::uint32_t c = 0; c < lanes; ++c) rests |= (beta[c] <= 0.0f) & (gradient[c] > 0.0f) ? 1u << c : 0u;
    if (const std::uint32_t acts = active & ~rests; acts != 0) {
        for (std::uint32_t c = 0; c < lanes; ++c) {
            const float b = beta[c], moved = std::max(0.0f, b - gradient[c] * rate);
            const float next = acts & 1u << c ? moved : b;
            worst[c] = std::max(worst[c], acts & 1u << c ? std::abs(gradient[c]) : 0.0f);
            change[c] = sign[c] * (next - b);
            beta[c] = next;
        }
        Lanes step;
        std::memcpy(&step, change, sizeof(step));
        for (i = 0; i < n; ++i) {
            std::memcpy(&w, at(i), sizeof(w));
            w = w + x[i].value * step;
            std::memcpy(at(i), &w, sizeof(w));
        }
    }
    return rests;
}

inline constexpr Kernels kernels{locate, add, add_own, nearest, products, pool, look_lanes};

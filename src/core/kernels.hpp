// The two loops in which a decision spends its time. Included by simd.hpp once per instruction set, each time within a
// namespace of its own that has `find_narrow`; hence no include guard.
//
// All sets give the same bytes: a slot's sum runs over the features in ascending order, one product and one sum at a
// time, in float32.

// Where the lists of the context's features are; those that are absent leave nothing behind. What a line says is
// believed only as far as the chunk reaches.
inline std::size_t locate(const Chunk& chunk, const Query& x, Hit* out) {
    std::size_t hits = 0;
    const auto keep = [&](std::uint32_t first, std::uint32_t words, float value) {
        if (std::uint64_t{first} + words > chunk.n_words) return;
        for (std::uint32_t w = 0; w < words; w += 16) prefetch(chunk.words + first + w);
        out[hits] = {first, words, value};
        hits += words > 0;
    };
    for (std::size_t j = 0; j < x.size(); ++j) {
        const std::byte* line = chunk.line(x, j);
        std::uint32_t first = 0;
        if (chunk.form == Entry::Form::narrow) {
            const std::uint32_t words = find_narrow(line, x.scattered[j], first);
            if (words > 0) keep(first, words, x.value[j]);
        } else {
            const auto* wide = reinterpret_cast<const WideLine*>(line);
            first = wide->base;
            for (std::size_t i = 0; i < WideLine::keys; first += wide->words[i++])
                if (wide->key[i] == x.scattered[j] && wide->words[i] > 0) {
                    keep(first, wide->words[i], x.value[j]);
                    break;
                }
        }
    }
    return hits;
}

inline void add_row(const float* weights, std::uint32_t slots, float value, float* score) {
    for (std::uint32_t s = 0; s < slots; ++s) score[s] += value * weights[s];
}

template <class Slot>
void add_list(const float* weights, std::uint32_t n, std::uint32_t slots, float value, float* score) {
    const auto* slot = reinterpret_cast<const Slot*>(weights + n);
    for (std::uint32_t i = 0; i < n; ++i)
        if (sizeof(Slot) < 4 || slot[i] < slots) score[slot[i]] += value * weights[i];
}

// score[slot] += x . w(slot) for every slot.
inline void add(const Chunk& chunk, const Hit* hits, std::size_t n, float* score) {
    for (const Hit* hit = hits; hit < hits + n; ++hit) {
        const auto* weights = reinterpret_cast<const float*>(chunk.words + hit->first);
        const std::uint32_t count = packed_count(hit->words, chunk.bits);
        if (hit->words == chunk.slots)
            add_row(weights, chunk.slots, hit->value, score);
        else if (chunk.bits == 8)
            add_list<std::uint8_t>(weights, count, chunk.slots, hit->value, score);
        else if (chunk.bits == 16)
            add_list<std::uint16_t>(weights, count, chunk.slots, hit->value, score);
        else
            add_list<std::uint32_t>(weights, count, chunk.slots, hit->value, score);
    }
}

inline void add_own(const Chunk& chunk, const Query& x, float* score) {
    for (std::size_t j = 0; j < x.size(); ++j)
        add_row(reinterpret_cast<const float*>(chunk.words + std::size_t(x.index[j]) * chunk.slots), chunk.slots,
                x.value[j], score);
}

inline constexpr Kernels kernels{locate, add, add_own};

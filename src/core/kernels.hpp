// The two loops in which a decision spends its time. Included by simd.hpp once per instruction set, each time within a
// namespace of its own that has `find_narrow` and `add_mapped`; hence no include guard.
//
// All sets give the same bytes: a slot's sum runs over the features in ascending order, one product and one sum at a
// time, in float32.

// Where the lists of the context's features are; those that are absent leave nothing behind. What a line says is
// believed only as far as the chunk reaches. Whether a feature is there cannot be foreseen: no branch asks for it.
inline std::size_t locate(const Chunk& chunk, const Query& x, Hit* out) {
    std::size_t hits = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
        const std::byte* line = chunk.line(x, j);
        std::uint32_t first = 0;
        const std::uint32_t words = chunk.form == Entry::Form::narrow ? find_narrow(line, x.scattered[j], first)
                                                                      : find_wide(line, x.scattered[j], first);
        if (std::uint64_t{first} + words > chunk.n_words) continue;
        const std::size_t last = words > 0 ? words - 1 : 0;
        const auto* list = words > 0 ? chunk.words + first : reinterpret_cast<const std::uint32_t*>(line);
        prefetch(list);
        prefetch(list + std::min<std::size_t>(16, last));
        prefetch(list + std::min<std::size_t>(32, last));
        for (std::size_t w = 48; w < words; w += 16) prefetch(list + w);
        out[hits] = {first, words, x.value[j]};
        hits += words > 0;
    }
    return hits;
}

inline void add_row(const float* weights, std::uint32_t slots, float value, float* score) {
    for (std::uint32_t s = 0; s < slots; ++s) score[s] += value * weights[s];
}

// Of `words` words, as many are weights as leave room for their slots.
template <class Slot>
void add_few(const float* weights, std::uint32_t words, std::uint32_t slots, float value, float* score) {
    const std::uint32_t n = words * 4 / (4 + sizeof(Slot));
    const auto* slot = reinterpret_cast<const Slot*>(weights + n);
    for (std::uint32_t i = 0; i < n; ++i)
        if (sizeof(Slot) < 4 || slot[i] < slots) score[slot[i]] += value * weights[i];
}

// score[slot] += x . w(slot) for every slot.
inline void add(const Chunk& chunk, const Hit* hits, std::size_t n, float* score) {
    const Lengths lengths(chunk.slots);
    for (const Hit* hit = hits; hit < hits + n; ++hit) {
        const std::uint32_t* list = chunk.words + hit->first;
        const auto* weights = reinterpret_cast<const float*>(list);
        if (hit->words >= lengths.mapped)
            add_mapped(list, lengths.bitmap, hit->value, score);
        else if (lengths.bits == 8)
            add_few8(weights, hit->words, hit->value, score);
        else if (lengths.bits == 16)
            add_few<std::uint16_t>(weights, hit->words, chunk.slots, hit->value, score);
        else
            add_few<std::uint32_t>(weights, hit->words, chunk.slots, hit->value, score);
    }
}

inline void add_own(const Chunk& chunk, const Query& x, float* score) {
    for (std::size_t j = 0; j < x.size(); ++j)
        add_row(reinterpret_cast<const float*>(chunk.words + std::size_t(x.index[j]) * chunk.slots), chunk.slots,
                x.value[j], score);
}

inline constexpr Kernels kernels{locate, add, add_own};

// The two loops in which a decision spends its time. Included by simd.hpp once per instruction set, each time within a
// namespace of its own that has `match_narrow` and `add_mapped`; hence no include guard.
//
// All sets give the same bytes: a slot's sum runs over the features in ascending order, one product and one sum at a
// time, in float32.

// Where the lists of the context's features are; those that are absent leave nothing behind. Whether a feature is there
// cannot be foreseen: no branch asks for it. First all lines are compared, which is all that an absent feature costs;
// then the lists of those that were found. What a line says is believed only as far as the chunk reaches.
inline std::size_t locate(const Chunk& chunk, const Query& x, Hit* out) {
    const bool narrow = chunk.form == Entry::Form::narrow;
    std::size_t found = 0, hits = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
        const std::uint32_t number = x.scatter.line(x.scattered[j], chunk.n_lines);
        const std::byte* line = chunk.lines + std::size_t{number} * line_bytes;
        const std::uint32_t places = narrow ? match_narrow(line, x.scattered[j]) : match_wide(line, x.scattered[j]);
        out[found] = {number, places, x.value[j]};
        found += places != 0;
    }
    for (std::size_t i = 0; i < found; ++i) {
        const std::byte* line = chunk.lines + std::size_t{out[i].first} * line_bytes;
        const auto place = static_cast<std::uint32_t>(std::countr_zero(out[i].words));
        std::uint32_t first = 0;
        const std::uint32_t words = narrow ? list_narrow(line, place, first) : list_wide(line, place, first);
        if (std::uint64_t{first} + words > chunk.n_words) continue;
        const std::uint32_t* list = chunk.words + first;
        const std::size_t last = words > 0 ? words - 1 : 0;
        prefetch(list);
        prefetch(list + std::min<std::size_t>(16, last));
        prefetch(list + std::min<std::size_t>(32, last));
        for (std::size_t w = 48; w < words; w += 16) prefetch(list + w);
        out[hits] = {first, words, out[i].value};
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

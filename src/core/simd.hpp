// A chunk as the kernels see it, and the kernels for every instruction set of x86-64 that pays; other machines have the
// plain one. The widest that the machine has is taken; TREETOP_SIMD names another.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "chunk.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define TREETOP_X86 1
#include <immintrin.h>
#endif

namespace treetop {

// Hidden latency is most of the speed: what will be read soon is asked for now, into the second-level cache, which
// takes more requests at a time than the first.
inline void prefetch(const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 2);
#else
    (void)address;
#endif
}

// [x; 1] with its features scattered as the index lines have them.
struct Query {
    std::span<const std::int32_t> index;
    std::span<const float> value;
    std::span<const std::uint32_t> scattered;
    Scatter scatter;
    std::size_t size() const { return index.size(); }
};

struct Chunk {
    const std::byte* lines = nullptr;
    const std::uint32_t* words = nullptr;
    std::uint64_t n_words = 0;
    std::uint32_t n_lines = 0, slots = 0, bits = 8;
    Entry::Form form = Entry::Form::empty;

    Chunk() = default;
    Chunk(const Arena& arena, const Entry& entry)
        : lines(arena.at(entry.at)),
          words(reinterpret_cast<const std::uint32_t*>(lines + entry.lines * line_bytes)),
          n_words(entry.words),
          n_lines(entry.lines),
          slots(entry.slots),
          bits(entry.bits),
          form(entry.form) {}

    const std::byte* line(const Query& x, std::size_t j) const {
        return lines + std::size_t{x.scatter.line(x.scattered[j], n_lines)} * line_bytes;
    }

    // Asks for what is read first.
    void ask(const Query& x) const {
        if (form == Entry::Form::own)
            for (const std::int32_t f : x.index)
                for (std::uint32_t s = 0; s < slots; s += 16) prefetch(words + std::size_t(f) * slots + s);
        else
            for (std::size_t j = 0; j < x.size(); ++j) prefetch(line(x, j));
    }
};

// A list of weights for a feature of the context, and the feature's value.
struct Hit {
    std::uint32_t first, words;
    float value;
};

struct Kernels {
    std::size_t (*locate)(const Chunk&, const Query&, Hit*);
    void (*add)(const Chunk&, const Hit*, std::size_t, float*);
    void (*add_own)(const Chunk&, const Query&, float*);
};

#ifdef TREETOP_X86
// Ones before place i, zeros from there on: before + 20 - i.
inline constexpr auto before = [] {
    std::array<std::uint8_t, 56> bytes{};
    for (int i = 0; i < 20; ++i) bytes[i] = 0xff;
    return bytes;
}();

// The sum of the lengths before place i of a line.
inline std::uint32_t words_before(const std::byte* line, unsigned i) {
    const auto* mask = before.data() + NarrowLine::keys - i;
    const __m128i zero = _mm_setzero_si128();
    const __m128i head = _mm_and_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + 44)),
                                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask)));
    const __m128i tail =
        _mm_and_si128(_mm_loadu_si32(line + 60), _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask + 16)));
    const __m128i sum = _mm_add_epi64(_mm_sad_epu8(head, zero), _mm_sad_epu8(tail, zero));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(sum) + _mm_extract_epi16(sum, 4));
}

// The list of place i: its length, and where it begins.
inline std::uint32_t list_at(const std::byte* line, unsigned i, std::uint32_t& first) {
    const auto* narrow = reinterpret_cast<const NarrowLine*>(line);
    first = narrow->base + words_before(line, i);
    return narrow->words[i];
}
#endif

namespace plain {
// The length of a feature's list, 0 if there is none, and where it begins. Of several places with the key only the
// first can be a feature's, since those that hold nothing come last.
inline std::uint32_t find_narrow(const std::byte* line, std::uint32_t scattered, std::uint32_t& first) {
#ifdef TREETOP_X86
    const __m128i key = _mm_set1_epi16(static_cast<short>(scattered));
    const auto equal = [&](int offset) {
        return _mm_cmpeq_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + offset)), key);
    };
    const auto low = static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(equal(4), equal(20))));
    const auto high = static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(equal(36), _mm_setzero_si128())));
    const unsigned found = low | (high & 0xf) << 16;
    return found ? list_at(line, static_cast<unsigned>(std::countr_zero(found)), first) : 0;
#else
    const auto* narrow = reinterpret_cast<const NarrowLine*>(line);
    first = narrow->base;
    for (std::size_t i = 0; i < NarrowLine::keys; first += narrow->words[i++])
        if (narrow->key[i] == static_cast<std::uint16_t>(scattered)) return narrow->words[i];
    return 0;
#endif
}
#include "kernels.hpp"
}  // namespace plain

#ifdef TREETOP_X86
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
inline std::uint32_t find_narrow(const std::byte* line, std::uint32_t scattered, std::uint32_t& first) {
    const __m256i key = _mm256_set1_epi16(static_cast<short>(scattered));
    const __m256i most = _mm256_cmpeq_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + 4)), key);
    const __m128i last = _mm_cmpeq_epi16(_mm_loadu_si64(line + 36), _mm256_castsi256_si128(key));
    const auto low = static_cast<std::uint32_t>(_mm256_movemask_epi8(most));
    const auto high = static_cast<std::uint32_t>(_mm_movemask_epi8(last)) & 0xff;
    const std::uint64_t found = low | std::uint64_t{high} << 32;
    return found ? list_at(line, static_cast<unsigned>(std::countr_zero(found)) / 2, first) : 0;
}
#include "kernels.hpp"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")
namespace avx512 {
inline std::uint32_t find_narrow(const std::byte* line, std::uint32_t scattered, std::uint32_t& first) {
    const __m512i all = _mm512_load_si512(line);
    const auto equal = _mm512_cmpeq_epi16_mask(all, _mm512_set1_epi16(static_cast<short>(scattered)));
    const std::uint32_t found = equal >> 2 & 0xfffff;
    return found ? list_at(line, static_cast<unsigned>(std::countr_zero(found)), first) : 0;
}
#include "kernels.hpp"
}  // namespace avx512
#pragma GCC pop_options
#endif

struct InstructionSet {
    const char* name;
    const Kernels* kernels;
};

// What this machine has, the widest last.
inline std::vector<InstructionSet> instruction_sets() {
    std::vector<InstructionSet> sets{{"baseline", &plain::kernels}};
#ifdef TREETOP_X86
    if (__builtin_cpu_supports("avx2")) sets.push_back({"avx2", &avx2::kernels});
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        sets.push_back({"avx512", &avx512::kernels});
#endif
    return sets;
}

inline InstructionSet named_set(const std::string& name) {
    std::string known;
    for (const InstructionSet& set : instruction_sets()) {
        if (set.name == name) return set;
        known += (known.empty() ? "" : ", ") + std::string(set.name);
    }
    throw std::invalid_argument("TREETOP_SIMD is '" + name + "'; this machine has " + known);
}

// Read once per process, when the first engine is made.
inline const Kernels& chosen_kernels() {
    static const InstructionSet chosen = [] {
        const char* wanted = std::getenv("TREETOP_SIMD");
        return wanted && *wanted ? named_set(wanted) : instruction_sets().back();
    }();
    return *chosen.kernels;
}

}  // namespace treetop

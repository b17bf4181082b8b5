// A chunk as the kernels see it, and the kernels for every instruction set of x86-64 that pays; other machines have the
// plain one. The widest that the machine has is taken; TREETOP_SIMD names another.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "chunk.hpp"
#include "machine.hpp"
#include "pooled_mean.hpp"
#include "rows.hpp"

#ifdef TREETOP_X86
#include <immintrin.h>
#endif

namespace treetop {

// Hidden latency is most of the speed: what will be read soon is asked for now, into the second-level cache, which
// takes more requests at a time than the first. The empty statement keeps the compiler from taking a function that does
// nothing else for one that does nothing.
inline void prefetch(const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 2);
    __asm__ volatile("");
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
    const std::byte* lists = nullptr;
    std::uint64_t size = 0;  // bytes of the lists
    std::uint32_t n_lines = 0, slots = 0;
    Entry::Form form = Entry::Form::empty;

    Chunk(const Arena& arena, const Entry& entry)
        : lines(arena.at(entry.at)),
          lists(lines + entry.lines * line_bytes),
          size(entry.size),
          n_lines(entry.lines),
          slots(entry.slots),
          form(entry.form) {}

    const std::byte* line(const Query& x, std::size_t j) const {
        return lines + std::size_t{x.scatter.line(x.scattered[j], n_lines)} * line_bytes;
    }
    const std::byte* row(std::int32_t feature) const {
        return lists + static_cast<std::size_t>(feature) * slots * sizeof(float);
    }

    // Asks for what is read first.
    void ask(const Query& x) const {
        if (form == Entry::Form::own)
            for (const std::int32_t f : x.index) prefetch(row(f));  // a row's rest comes along
        else
            for (std::size_t j = 0; j < x.size(); ++j) prefetch(line(x, j));
    }
};

// A list of weights for a feature of the context, and the feature's value.
struct Hit {
    std::uint64_t first;
    std::uint32_t n;
    float value;
};

template <class T>
T read(const std::byte* at) {
    T found;
    std::memcpy(&found, at, sizeof(T));
    return found;
}

struct Kernels {
    std::size_t (*locate)(const Chunk&, const Query&, Hit*);
    void (*add)(const Chunk&, const Hit*, std::size_t, float*);
    void (*add_own)(const Chunk&, const Query&, float*);
    void (*nearest)(const float*, std::size_t, std::size_t, const float*, const float*, std::size_t, std::int32_t*);
    void (*products)(const float*, const float*, std::size_t, const std::int32_t*, std::size_t, bool, float*);
    void (*pool)(const float*, std::size_t, double, std::span<const float>, double*, float*);
    std::uint32_t (*look_lanes)(const Nonzero*, std::size_t, float, float, std::uint32_t, std::uint32_t, float*, float*,
                                float*);
};

// Routing functions that are fitted side by side, and a number of each: as wide as the kernel's registers are.
inline constexpr std::size_t lanes = 16;
#if defined(__GNUC__)
using Lanes = float __attribute__((vector_size(lanes * sizeof(float))));
#else
struct Lanes {
    float lane[lanes];
    friend Lanes operator+(Lanes a, const Lanes& b) {
        for (std::size_t c = 0; c < lanes; ++c) a.lane[c] += b.lane[c];
        return a;
    }
    friend Lanes operator*(float factor, Lanes a) {
        for (float& v : a.lane) v *= factor;
        return a;
    }
};
#endif

#ifdef TREETOP_X86
// Ones before place i, zeros from there on: before + 20 - i.
inline constexpr auto before = [] {
    std::array<std::uint8_t, 56> bytes{};
    for (int i = 0; i < 20; ++i) bytes[i] = 0xff;
    return bytes;
}();

// The counts before place i of a line, added up: as they are, and each at most `limit`.
inline std::array<std::uint32_t, 2> counts_before(const std::byte* line, unsigned i, std::uint8_t limit) {
    const auto* mask = before.data() + NarrowLine::keys - i;
    const __m128i zero = _mm_setzero_si128(), most = _mm_set1_epi8(static_cast<char>(limit));
    const __m128i head = _mm_and_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + 44)),
                                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask)));
    const __m128i tail =
        _mm_and_si128(_mm_loadu_si32(line + 60), _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask + 16)));
    const __m128i all = _mm_add_epi32(_mm_sad_epu8(head, zero), _mm_sad_epu8(tail, zero));
    const __m128i few =
        _mm_add_epi32(_mm_sad_epu8(_mm_min_epu8(head, most), zero), _mm_sad_epu8(_mm_min_epu8(tail, most), zero));
    const __m128i sums = _mm_add_epi32(_mm_unpacklo_epi64(all, few), _mm_unpackhi_epi64(all, few));
    return {static_cast<std::uint32_t>(_mm_cvtsi128_si32(sums)),
            static_cast<std::uint32_t>(_mm_extract_epi16(sums, 4))};
}

// Four at a time; what is read behind a list counts as zeros.
inline void add_few8(const std::byte* list, std::uint32_t n, float value, float* score) {
    const auto* weights = reinterpret_cast<const float*>(list + n);
    alignas(16) static constexpr std::uint32_t kept[8] = {~0u, ~0u, ~0u, ~0u};
    for (std::uint32_t i = 0; i < n; i += 4) {
        const __m128 mask = _mm_loadu_ps(reinterpret_cast<const float*>(kept) + 4 - std::min(4u, n - i));
        alignas(16) float product[4];
        _mm_store_ps(product, _mm_mul_ps(_mm_set1_ps(value), _mm_and_ps(_mm_loadu_ps(weights + i), mask)));
        for (std::uint32_t k = 0; k < 4; ++k) score[std::to_integer<std::uint8_t>(list[i + k])] += product[k];
    }
}
#else
inline std::array<std::uint32_t, 2> counts_before(const std::byte* line, unsigned place, std::uint8_t limit) {
    const auto* narrow = reinterpret_cast<const NarrowLine*>(line);
    std::array<std::uint32_t, 2> sums{};
    for (std::uint32_t i = 0; i < place; ++i) {
        sums[0] += narrow->count[i];
        sums[1] += std::min(narrow->count[i], limit);
    }
    return sums;
}

inline void add_few8(const std::byte* list, std::uint32_t n, float value, float* score) {
    for (std::uint32_t i = 0; i < n; ++i)
        score[std::to_integer<std::uint8_t>(list[i])] += value * read<float>(list + n + i * sizeof(float));
}
#endif

// The list of a place of a line: how many weights it has, and where it begins.
inline std::uint32_t list_narrow(const std::byte* line, std::uint32_t place, const Lists& lists, std::uint64_t& first) {
    const auto* narrow = reinterpret_cast<const NarrowLine*>(line);
    const auto [all, few] = counts_before(line, place, static_cast<std::uint8_t>(std::min(lists.mapped, 0xffu)));
    first = std::uint64_t{narrow->base & ~NarrowLine::spills} + 4 * all + std::uint64_t{lists.step} * few;
    return narrow->count[place];
}

inline std::uint32_t list_wide(const std::byte* line, std::uint32_t place, const Lists& lists, std::uint64_t& first) {
    const auto* wide = reinterpret_cast<const WideLine*>(line);
    first = std::uint64_t{wide->above & ~NarrowLine::spills} << 32 | wide->base;
    for (std::uint32_t i = 0; i < place; ++i) first += lists.bytes(wide->count[i]);
    return wide->count[place];
}

// Whether features of a line are in the next one.
inline bool spilled_narrow(const std::byte* line) {
    return (reinterpret_cast<const NarrowLine*>(line)->base & NarrowLine::spills) != 0;
}
inline bool spilled_wide(const std::byte* line) {
    return (reinterpret_cast<const WideLine*>(line)->above & NarrowLine::spills) != 0;
}

// The places of a line that have the key, a bit each. Only the lowest can be the feature's: places that hold nothing
// come last.
inline std::uint32_t match_wide(const std::byte* line, std::uint32_t scattered) {
    const auto* wide = reinterpret_cast<const WideLine*>(line);
    std::uint32_t places = 0;
    for (std::uint32_t i = 0; i < WideLine::keys; ++i)
        places |= static_cast<std::uint32_t>(wide->key[i] == scattered) << i;
    return places;
}

#ifdef TREETOP_X86
// For every byte: the number of set bits before each bit, and in all.
inline constexpr auto spread = [] {
    std::array<std::array<std::uint8_t, 9>, 256> table{};
    for (unsigned byte = 0; byte < 256; ++byte)
        for (unsigned bit = 0; bit < 8; ++bit)
            table[byte][bit + 1] = static_cast<std::uint8_t>(table[byte][bit] + (byte >> bit & 1));
    return table;
}();
#endif

namespace plain {
inline std::uint32_t match_narrow(const std::byte* line, std::uint32_t scattered) {
#ifdef TREETOP_X86
    const __m128i key = _mm_set1_epi16(static_cast<short>(scattered));
    const auto equal = [&](int offset) {
        return _mm_cmpeq_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + offset)), key);
    };
    const auto low = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(equal(4), equal(20))));
    const auto high = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(equal(36), _mm_setzero_si128())));
    return low | (high & 0xf) << 16;
#else
    const auto* narrow = reinterpret_cast<const NarrowLine*>(line);
    std::uint32_t places = 0;
    for (std::uint32_t i = 0; i < NarrowLine::keys; ++i)
        places |= static_cast<std::uint32_t>(narrow->key[i] == static_cast<std::uint16_t>(scattered)) << i;
    return places;
#endif
}

// A list of bits, 32 to a word, and of the weights of those that are set.
inline void add_mapped(const std::byte* list, std::uint32_t bitmap, float value, float* score) {
    const std::byte* weight = list + 4 * bitmap;
    for (std::uint32_t w = 0; w < bitmap; ++w)
        for (auto set = read<std::uint32_t>(list + 4 * w); set != 0; set &= set - 1) {
            score[32 * w + static_cast<std::uint32_t>(std::countr_zero(set))] += value * read<float>(weight);
            weight += sizeof(float);
        }
}

template <std::uint32_t words>
void add_all_mapped(const std::byte* lists, const Hit* hits, std::size_t n, float* score) {
    for (const Hit* hit = hits; hit < hits + n; ++hit) add_mapped(lists + hit->first, words, hit->value, score);
}
#include "kernels.hpp"
}  // namespace plain

#ifdef TREETOP_X86
TREETOP_BEGIN_TARGET("avx2")
namespace avx2 {
inline std::uint32_t match_narrow(const std::byte* line, std::uint32_t scattered) {
    const __m256i key = _mm256_set1_epi16(static_cast<short>(scattered));
    const __m256i most = _mm256_cmpeq_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + 4)), key);
    const __m128i last = _mm_cmpeq_epi16(_mm_loadu_si64(line + 36), _mm256_castsi256_si128(key));
    const __m128i both = _mm_packs_epi16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    const auto low = static_cast<std::uint32_t>(_mm_movemask_epi8(both));
    const auto high = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(last, last))) & 0xf;
    return low | high << 16;
}

// Eight slots at a time: their weights are moved to where their bits are. The number of steps is the chunk's, so that
// there is nothing to foresee.
inline __m256 add_eight(const float*& weight, std::uint32_t eight, __m256 value, __m256 sum) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i from = _mm256_cvtepu8_epi32(_mm_loadu_si64(spread[eight].data()));
    const __m256i here = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(eight)), lane), lane);
    // Lanes without a bit hold whatever comes next, often a denormal number, slow to multiply: zeros first.
    const __m256 moved =
        _mm256_and_ps(_mm256_permutevar8x32_ps(_mm256_loadu_ps(weight), from), _mm256_castsi256_ps(here));
    weight += spread[eight][8];
    return _mm256_add_ps(sum, _mm256_mul_ps(value, moved));
}

inline void add_mapped(const std::byte* list, std::uint32_t bitmap, float value, float* score) {
    const auto* weight = reinterpret_cast<const float*>(list + 4 * bitmap);
    const __m256 factor = _mm256_set1_ps(value);
    for (std::uint32_t w = 0; w < bitmap; ++w)
        for (std::uint32_t bit = 0; bit < 32; bit += 8) {
            float* at = score + 32 * w + bit;
            const std::uint32_t eight = read<std::uint32_t>(list + 4 * w) >> bit & 0xff;
            _mm256_storeu_ps(at, add_eight(weight, eight, factor, _mm256_loadu_ps(at)));
        }
}

// Lists of `words` words of bits each; the sums stay in registers.
template <std::uint32_t words>
void add_all_mapped(const std::byte* lists, const Hit* hits, std::size_t n, float* score) {
    __m256 sum[4 * words];
    for (std::uint32_t i = 0; i < 4 * words; ++i) sum[i] = _mm256_loadu_ps(score + 8 * i);
    for (const Hit* hit = hits; hit < hits + n; ++hit) {
        const std::byte* list = lists + hit->first;
        const auto* weight = reinterpret_cast<const float*>(list + 4 * words);
        const __m256 factor = _mm256_set1_ps(hit->value);
        for (std::uint32_t i = 0; i < 4 * words; ++i)
            sum[i] = add_eight(weight, std::to_integer<std::uint32_t>(list[i]), factor, sum[i]);
    }
    for (std::uint32_t i = 0; i < 4 * words; ++i) _mm256_storeu_ps(score + 8 * i, sum[i]);
}
#include "kernels.hpp"
}  // namespace avx2
TREETOP_END_TARGET

TREETOP_BEGIN_TARGET(TREETOP_AVX512)
namespace avx512 {
inline std::uint32_t match_narrow(const std::byte* line, std::uint32_t scattered) {
    const __m512i all = _mm512_load_si512(line);
    const auto equal = _mm512_cmpeq_epi16_mask(all, _mm512_set1_epi16(static_cast<short>(scattered)));
    return equal >> 2 & 0xfffff;  // behind the base, before the lengths
}

// Sixteen slots at a time.
inline __m512 add_sixteen(const float*& weight, std::uint32_t bits, __m512 value, __m512 sum) {
    const auto sixteen = static_cast<__mmask16>(bits);
    const __m512 product = _mm512_mul_ps(value, _mm512_maskz_expand_ps(sixteen, _mm512_loadu_ps(weight)));
    weight += _mm_popcnt_u32(sixteen);
    return _mm512_add_ps(sum, product);
}

inline void add_mapped(const std::byte* list, std::uint32_t bitmap, float value, float* score) {
    const auto* weight = reinterpret_cast<const float*>(list + 4 * bitmap);
    const __m512 factor = _mm512_set1_ps(value);
    for (std::uint32_t w = 0; w < bitmap; ++w)
        for (std::uint32_t bit = 0; bit < 32; bit += 16) {
            float* at = score + 32 * w + bit;
            _mm512_storeu_ps(
                at, add_sixteen(weight, read<std::uint32_t>(list + 4 * w) >> bit, factor, _mm512_loadu_ps(at)));
        }
}

// Lists of `words` words of bits each; the sums stay in registers.
template <std::uint32_t words>
void add_all_mapped(const std::byte* lists, const Hit* hits, std::size_t n, float* score) {
    __m512 sum[2 * words];
    for (std::uint32_t i = 0; i < 2 * words; ++i) sum[i] = _mm512_loadu_ps(score + 16 * i);
    for (const Hit* hit = hits; hit < hits + n; ++hit) {
        const std::byte* list = lists + hit->first;
        const auto* weight = reinterpret_cast<const float*>(list + 4 * words);
        const __m512 factor = _mm512_set1_ps(hit->value);
        for (std::uint32_t i = 0; i < 2 * words; ++i)
            sum[i] = add_sixteen(weight, read<std::uint16_t>(list + 2 * i), factor, sum[i]);
    }
    for (std::uint32_t i = 0; i < 2 * words; ++i) _mm512_storeu_ps(score + 16 * i, sum[i]);
}
#include "kernels.hpp"
}  // namespace avx512
TREETOP_END_TARGET
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

// zlib's CRC-32, fast enough for files of gigabytes: by carry-less multiplication where the machine has it, on several
// threads. The same numbers as zlib.crc32.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "machine.hpp"
#include "parallel.hpp"

#ifdef TREETOP_X86
#include <immintrin.h>
#endif

namespace treetop {

constexpr std::uint32_t crc_polynomial = 0xedb88320;  // reflected: the highest power is the lowest bit

inline constexpr auto crc_table = [] {
    std::array<std::array<std::uint32_t, 256>, 8> table{};
    for (std::uint32_t n = 0; n < 256; ++n) {
        std::uint32_t value = n;
        for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ crc_polynomial : value >> 1;
        table[0][n] = value;
    }
    for (std::uint32_t n = 0; n < 256; ++n)
        for (std::size_t k = 1; k < 8; ++k) table[k][n] = table[0][table[k - 1][n] & 0xff] ^ table[k - 1][n] >> 8;
    return table;
}();

// The register of the division after some more bytes, eight at a time.
inline std::uint32_t crc_bytes(std::uint32_t state, std::span<const std::byte> bytes) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(bytes.data());
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, p += 8) {
        const std::uint32_t low = state ^ (p[0] | p[1] << 8 | p[2] << 16 | std::uint32_t{p[3]} << 24);
        state = crc_table[7][low & 0xff] ^ crc_table[6][low >> 8 & 0xff] ^ crc_table[5][low >> 16 & 0xff] ^
                crc_table[4][low >> 24] ^ crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^
                crc_table[0][p[7]];
    }
    for (; left > 0; --left) state = crc_table[0][(state ^ *p++) & 0xff] ^ state >> 8;
    return state;
}

#ifdef TREETOP_X86
// Gopal et al. 2009, "Fast CRC computation for generic polynomials using PCLMULQDQ": a stretch of 128 bits is replaced
// by an equal remainder 512 (or 128) bits further on. The factors are powers of x modulo the polynomial.
__attribute__((target("pclmul"))) inline __m128i crc_fold(__m128i block, __m128i factors, __m128i next) {
    const __m128i low = _mm_clmulepi64_si128(block, factors, 0x00), high = _mm_clmulepi64_si128(block, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul"))) inline std::uint32_t crc_folded(std::uint32_t state,
                                                                  std::span<const std::byte> bytes) {
    const auto load = [&](std::size_t offset) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data() + offset));
    };
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i a = _mm_xor_si128(load(0), _mm_cvtsi32_si128(static_cast<int>(state)));
    __m128i b = load(16), c = load(32), d = load(48);
    std::size_t at = 64;
    for (; at + 64 <= bytes.size(); at += 64) {
        a = crc_fold(a, by_512, load(at));
        b = crc_fold(b, by_512, load(at + 16));
        c = crc_fold(c, by_512, load(at + 32));
        d = crc_fold(d, by_512, load(at + 48));
    }
    const __m128i rest = crc_fold(crc_fold(crc_fold(a, by_128, b), by_128, c), by_128, d);
    std::array<std::byte, 16> remainder;
    std::memcpy(remainder.data(), &rest, sizeof rest);
    return crc_bytes(crc_bytes(0, remainder), bytes.subspan(at));
}
#endif

inline std::uint32_t crc32(std::span<const std::byte> bytes) {
#ifdef TREETOP_X86
    static const bool folds = __builtin_cpu_supports("pclmul");
    if (folds && bytes.size() >= 64) return ~crc_folded(0xffffffff, bytes);
#endif
    return ~crc_bytes(0xffffffff, bytes);
}

// a b modulo the polynomial.
inline std::uint32_t crc_product(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
        if (a & bit) product ^= b;
        b = b & 1 ? b >> 1 ^ crc_polynomial : b >> 1;
    }
    return product;
}

// x^(8 bytes) modulo the polynomial: what a checksum is multiplied with when so many bytes follow.
inline std::uint32_t crc_shift(std::uint64_t bytes) {
    std::uint32_t power = 0x80000000, square = 0x00800000;  // 1 and x^8
    for (; bytes != 0; bytes >>= 1) {
        if (bytes & 1) power = crc_product(power, square);
        square = crc_product(square, square);
    }
    return power;
}

inline std::uint32_t crc32(std::span<const std::byte> bytes, int threads) {
    constexpr std::size_t piece = std::size_t{1} << 22;
    const std::size_t pieces = (bytes.size() + piece - 1) / piece;
    if (pieces < 2) return crc32(bytes);
    std::vector<std::uint32_t> part(pieces);
    const auto of = [&](std::size_t i) { return bytes.subspan(i * piece, std::min(piece, bytes.size() - i * piece)); };
    parallel_for(pieces, threads, 1, [&](int, std::size_t i) { part[i] = crc32(of(i)); });
    const std::uint32_t shift = crc_shift(piece);
    std::uint32_t total = part[0];
    for (std::size_t i = 1; i + 1 < pieces; ++i) total = crc_product(total, shift) ^ part[i];
    return crc_product(total, crc_shift(of(pieces - 1).size())) ^ part[pieces - 1];
}

}  // namespace treetop

// Randomness from a key, never from state: the same (key, slot) gives the same draws on any thread and machine.
#pragma once

#include <cstdint>

namespace treetop {

// The finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection that scatters every input bit.
inline std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

inline std::uint64_t derive(std::uint64_t key, std::uint64_t part) {
    return mix(mix(key + 0x9e3779b97f4a7c15ULL) ^ (part * 0xd1342543de82ef95ULL + 1));
}

class Stream {
public:
    explicit Stream(std::uint64_t key) : state_(key) {}

    std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }

    // In [0, 1), a multiple of 2^-53.
    double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

    // Exactly uniform in [0, n): the incomplete last stretch of the 64-bit range is drawn again.
    std::uint64_t below(std::uint64_t n) {
        const std::uint64_t limit = -n % n;
        for (;;) {
            const std::uint64_t r = next();
            if (r >= limit) return r % n;
        }
    }

private:
    std::uint64_t state_;
};

}  // namespace treetop

// The float32 nearest to a decimal number: std::from_chars, also where the library has it for integers only, and with 0
// for what is smaller than the smallest.
#pragma once

#include <locale.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <system_error>

#include "machine.hpp"

#if defined(__APPLE__)
#include <xlocale.h>
#endif

namespace treetop {

// The end of the number that begins here: -1.5e-3, .5, inf, nan; `at` if there is none.
inline const char* decimal_end(const char* at, const char* end) {
    const auto digits = [end](const char* from) {
        while (from != end && *from >= '0' && *from <= '9') ++from;
        return from;
    };
    const auto spells = [end](const char* from, const char* word) {
        for (; *word; ++word, ++from)
            if (from == end || (*from | 0x20) != *word) return false;
        return true;
    };
    const char* const first = at != end && *at == '-' ? at + 1 : at;
    if (spells(first, "inf") || spells(first, "nan")) return first + 3;
    const char* stop = digits(first);
    bool any = stop != first;
    if (stop != end && *stop == '.') {
        const char* const after = digits(stop + 1);
        any |= after != stop + 1;
        if (any) stop = after;
    }
    if (!any) return at;
    if (stop != end && (*stop | 0x20) == 'e') {
        const char* const sign = stop + 1;
        const char* const power = sign != end && (*sign == '-' || *sign == '+') ? sign + 1 : sign;
        if (const char* const after = digits(power); after != power) stop = after;
    }
    return stop;
}

inline std::from_chars_result parse_decimal(const char* at, const char* end, float& number) {
#ifdef TREETOP_FROM_CHARS
    if (const auto parsed = std::from_chars(at, end, number); parsed.ec != std::errc::result_out_of_range)
        return parsed;
#endif
    static const locale_t with_a_point = newlocale(LC_ALL_MASK, "C", nullptr);
    const char* const stop = decimal_end(at, end);
    if (stop == at) return {at, std::errc::invalid_argument};
    const std::string word(at, stop);
    number = strtof_l(word.c_str(), nullptr, with_a_point);
    const bool beyond = std::isinf(number) && word.find_first_of("nN") == std::string::npos;
    return {stop, beyond ? std::errc::result_out_of_range : std::errc()};
}

}  // namespace treetop

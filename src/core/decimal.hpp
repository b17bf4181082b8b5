// std::from_chars for float and double, also where the library has it for integers only.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <system_error>
#include <type_traits>

#include "machine.hpp"

#ifndef TREETOP_FROM_CHARS
#include <locale.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif
#endif

namespace treetop {

#ifdef TREETOP_FROM_CHARS
template <class Number>
std::from_chars_result parse_decimal(const char* at, const char* end, Number& number) {
    return std::from_chars(at, end, number);
}
#else
// The end of the decimal number that begins here: -1.5e-3, .5, inf, nan; `at` if there is none.
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
    if (spells(first, "infinity")) return first + 8;
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

// By the C library's strtod in the locale that has a point. Numbers too small are 0.
template <class Number>
std::from_chars_result parse_decimal(const char* at, const char* end, Number& number) {
    static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
    const char* const stop = decimal_end(at, end);
    if (stop == at) return {at, std::errc::invalid_argument};
    const std::string word(at, stop);
    Number found;
    if constexpr (std::is_same_v<Number, float>)
        found = strtof_l(word.c_str(), nullptr, plain);
    else
        found = strtod_l(word.c_str(), nullptr, plain);
    const bool spelled = word.find_first_of("nN") != std::string::npos;  // inf or nan
    if (std::isinf(found) && !spelled) return {stop, std::errc::result_out_of_range};
    number = found;
    return {stop, std::errc()};
}
#endif

}  // namespace treetop

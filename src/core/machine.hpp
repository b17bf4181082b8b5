// What the machine, the system and the library have beyond what all of them have. Built with TREETOP_PORTABLE none of
// it is used: what any other machine gets, to be tested on this one.
#pragma once

#include <version>

#if !defined(TREETOP_PORTABLE)
#if defined(__x86_64__) && defined(__GNUC__)
#define TREETOP_X86 1
#endif
#if defined(__linux__)
#define TREETOP_LINUX 1
#endif
#if defined(__cpp_lib_to_chars)
#define TREETOP_FROM_CHARS 1  // for float and double: Apple's library has it for integers only
#endif
#endif

// Functions between the two are compiled for more than every x86-64 has. Only what the machine has been asked for may
// call them.
#ifdef TREETOP_X86
#define TREETOP_PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define TREETOP_BEGIN_TARGET(features) \
    TREETOP_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define TREETOP_END_TARGET TREETOP_PRAGMA(clang attribute pop)
#define TREETOP_AVX512 "avx512f,avx512bw,avx512vl,popcnt"
#else
#define TREETOP_BEGIN_TARGET(features) TREETOP_PRAGMA(GCC push_options) TREETOP_PRAGMA(GCC target(features))
#define TREETOP_END_TARGET TREETOP_PRAGMA(GCC pop_options)
#define TREETOP_AVX512 "avx512f,avx512bw,avx512vl,popcnt,prefer-vector-width=512"
#endif
#endif

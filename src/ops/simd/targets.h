// SPDX-License-Identifier: Apache-2.0
// Pieces for the compiler that all kernels share: the instruction sets they are compiled for,
// unrolled loops, and copies from addresses that are not aligned. Include before <hwy/...> in every
// file that uses foreach_target.
#pragma once

#include <cstddef>
#include <cstring>

// Highway kernels are compiled for AVX-512 (AVX3), AVX2 with FMA and F16C, and plain scalar code
// where neither exists. Each further target costs build time in every kernel file and would serve
// no machine we know of. The macro is an expression over Highway's own target names, which need not
// be defined yet.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif

// Before a loop over a compile-time count whose body works on an array of vectors: fully unrolled,
// the array lives in registers.
#if defined(__clang__)
#define HEDDLE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HEDDLE_UNROLL _Pragma("GCC unroll 32")
#endif

namespace heddle::ops::simd {

// memcpy of weights, which lie where their file has them, at any address. Given a float* itself,
// std::memcpy may take its type for a promise that it is aligned.
inline void copy_unaligned(void* to, const void* from, size_t num_bytes) {
  std::memcpy(to, from, num_bytes);
}

}  // namespace heddle::ops::simd

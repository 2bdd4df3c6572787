// SPDX-License-Identifier: Apache-2.0
// Compiler support that all CPU kernels share: the instruction sets they are compiled for, unrolled
// loops, and copies from unaligned addresses. Include before <hwy/...> in every file that uses
// foreach_target.
#pragma once

#include <cstddef>
#include <cstring>

// Highway kernels are compiled for AVX-512 (AVX3), for AVX2 with FMA and F16C, and as plain scalar
// code for other CPUs. Each further target would cost build time in every kernel file and help no
// machine we know of. The macro is an expression over Highway's own target names, which need not be
// defined yet.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif

// Unrolls the loop that follows completely. Used for loops over a compile-time count that work on
// an array of vectors, so that the array is kept in registers.
#if defined(__clang__)
#define HEDDLE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HEDDLE_UNROLL _Pragma("GCC unroll 32")
#endif

namespace heddle::ops::simd {

// memcpy from an address without any alignment, as weights in mapped files have. If std::memcpy is
// given a float*, the compiler may conclude from the type that it is aligned.
inline void copy_unaligned(void* to, const void* from, size_t num_bytes) {
  std::memcpy(to, from, num_bytes);
}

}  // namespace heddle::ops::simd

// SPDX-License-Identifier: Apache-2.0
// Matrix products of a warpgroup (128 threads) on bytes (PTX wgmma): E4M3 with fp32 sums, or
// unsigned times signed integers with sums of 32 bits, which are exact.
//
// d [64, N] = a [64, 32] * b [32, N], plus d if `accumulate`; a and b are in shared memory with
// rows along K. Each thread has N / 2 accumulators, in the layout that wgmma.cuh describes. `a` is
// a tile for rows_along_k(), with 32 bytes of K where wgmma.cuh has 16 bf16. `b` is not swizzled:
// see pieces_along_k().
#pragma once

#include <cstdint>

#include "ops/cuda/sm90/wgmma.cuh"

namespace heddle::ops::sm90 {

// Descriptor of a factor in pieces of 16 bytes: piece k / 16 of row n is at (k / 16) * next_piece +
// n * 16. If a product reads rows after the last one, it reads those of the next pieces. A step of
// 32 along K advances by two pieces.
__device__ inline uint64_t pieces_along_k(const void* first, uint32_t next_piece) {
  constexpr uint64_t kEightRows = 8 * 16;
  const uint64_t address = shared_address(first) & 0x3ffff;
  return ((kEightRows >> 4) << 32) | (uint64_t{next_piece >> 4} << 16) | (address >> 4);
}

template <int kCount>
__device__ inline void settle(int32_t (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

#define HEDDLE_NAMES_4 "%0, %1, %2, %3"
#define HEDDLE_NAMES_8 HEDDLE_NAMES_4 ", %4, %5, %6, %7"
#define HEDDLE_NAMES_16 HEDDLE_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define HEDDLE_OPERANDS_4(kind, d, i) \
  "+" kind(d[i]), "+" kind(d[i + 1]), "+" kind(d[i + 2]), "+" kind(d[i + 3])
#define HEDDLE_OPERANDS_8(kind, d, i) \
  HEDDLE_OPERANDS_4(kind, d, i), HEDDLE_OPERANDS_4(kind, d, i + 4)
#define HEDDLE_OPERANDS_16(kind, d, i) \
  HEDDLE_OPERANDS_8(kind, d, i), HEDDLE_OPERANDS_8(kind, d, i + 8)
// `count` is the number of a thread's accumulators, N / 2.
#define HEDDLE_BYTE_PRODUCT(type, kind, types, signs, n, count, a_name, b_name, p_name)           \
  __device__ inline void byte_product(type(&d)[count], uint64_t a, uint64_t b, bool accumulate) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_name                                       \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k32." types                        \
                 " {" HEDDLE_NAMES_##count "}, " a_name ", " b_name ", p" signs ";\n}\n"          \
                 : HEDDLE_OPERANDS_##count(kind, d, 0)                                            \
                 : "l"(a), "l"(b), "r"(accumulate ? 1 : 0));                                      \
  }

HEDDLE_BYTE_PRODUCT(float, "f", "f32.e4m3.e4m3", ", 1, 1", 8, 4, "%4", "%5", "%6")
HEDDLE_BYTE_PRODUCT(float, "f", "f32.e4m3.e4m3", ", 1, 1", 16, 8, "%8", "%9", "%10")
HEDDLE_BYTE_PRODUCT(float, "f", "f32.e4m3.e4m3", ", 1, 1", 32, 16, "%16", "%17", "%18")
HEDDLE_BYTE_PRODUCT(int32_t, "r", "s32.u8.s8", "", 8, 4, "%4", "%5", "%6")
HEDDLE_BYTE_PRODUCT(int32_t, "r", "s32.u8.s8", "", 16, 8, "%8", "%9", "%10")
HEDDLE_BYTE_PRODUCT(int32_t, "r", "s32.u8.s8", "", 32, 16, "%16", "%17", "%18")

#undef HEDDLE_BYTE_PRODUCT
#undef HEDDLE_OPERANDS_16
#undef HEDDLE_OPERANDS_8
#undef HEDDLE_OPERANDS_4
#undef HEDDLE_NAMES_16
#undef HEDDLE_NAMES_8
#undef HEDDLE_NAMES_4

}  // namespace heddle::ops::sm90

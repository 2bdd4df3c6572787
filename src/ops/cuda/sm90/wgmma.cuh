// SPDX-License-Identifier: Apache-2.0
// Matrix products of a warpgroup (128 threads) on bf16 with fp32 sums (PTX wgmma).
//
// Layout of the accumulators of m64nN: thread (warp w, lane l) holds, for every block i of 8
// columns, in d[4i] and d[4i + 1] row 16w + l/4, columns 8i + 2(l%4) and the next; in d[4i + 2] and
// d[4i + 3] the same columns of row + 8. Two such blocks, rounded to bf16 and packed in pairs, are
// the four registers of A for one step of 16 along K: the result of a product can be the left
// factor of the next one without leaving registers.
//
// Factors in shared memory are tiles with rows of 128 bytes (64 bf16) in groups of 8 rows (1024
// bytes), 1024-byte aligned, in the copy engine's 128-byte swizzle: the 16-byte piece c of row r is
// at piece c ^ (r % 8).
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "ops/cuda/sm90/mbarrier.cuh"

namespace heddle::ops::sm90 {

// Must be called before the first product that reads registers which other instructions wrote.
__device__ inline void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the kOpen last committed groups of products are unfinished.
template <int kOpen>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}

// Keeps the compiler from moving uses of an accumulator above the wait for its product.
template <int kCount>
__device__ inline void settle(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Constant bits of the descriptor of a swizzled tile: the 128-byte swizzle, and the 1024 bytes from
// one group of 8 rows to the next.
inline constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;

// Descriptor of a tile whose rows run along K: [rows, 64] with 64 columns of K. A step of 16 along
// K advances by 32 bytes.
__device__ inline uint64_t rows_along_k(const void* tile, int k) {
  const uint64_t address = (shared_address(tile) + 2 * k) & 0x3ffff;
  return kSwizzle128 | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 16) | (address >> 4);
}

// Descriptor of the data `steps` steps of 16 further along K: a tile of 64 columns has four steps,
// then follows the next tile.
__device__ inline uint64_t further_along_k(uint64_t descriptor, int steps) {
  return descriptor + steps / 4 * (8192 >> 4) + steps % 4 * (32 >> 4);
}

// Descriptor of a tile whose rows run along N, for the second factor with kTransposed: [K, 64] with
// 64 columns of N. Further columns of N are in tiles at a distance of `next_bytes`. `k` is the
// first of 16 rows.
__device__ inline uint64_t rows_along_n(const void* tile, int k, uint64_t next_bytes) {
  const uint64_t address = (shared_address(tile) + 128 * k) & 0x3ffff;
  return kSwizzle128 | (uint64_t{1024 >> 4} << 32) | ((next_bytes >> 4) << 16) | (address >> 4);
}

// Descriptor of the same tile `steps` steps of 16 further along K.
__device__ inline uint64_t further_along_n(uint64_t descriptor, int steps) {
  return descriptor + steps * (16 * 128 >> 4);
}

// Rounds two fp32 numbers to bf16 and packs them into a register, the first in the lower half.
__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// The registers of the left factor for the step along K that starts at column 16 * step of an
// accumulator.
template <int kCount>
__device__ inline void pack_step(const float (&d)[kCount], int step, uint32_t (&a)[4]) {
  a[0] = pack(d[8 * step], d[8 * step + 1]);
  a[1] = pack(d[8 * step + 2], d[8 * step + 3]);
  a[2] = pack(d[8 * step + 4], d[8 * step + 5]);
  a[3] = pack(d[8 * step + 6], d[8 * step + 7]);
}

// Operands of the inline assembly: a product's text names its accumulators first, from %0 on, then
// its inputs. These macros are the names and operands of 16 to 96 accumulators.
#define HEDDLE_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define HEDDLE_NAMES_32                                                           \
  HEDDLE_NAMES_16                                                                 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
  "%31"
#define HEDDLE_NAMES_48                                                           \
  HEDDLE_NAMES_32                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47"
#define HEDDLE_NAMES_64                                                           \
  HEDDLE_NAMES_48                                                                 \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
  "%63"
#define HEDDLE_NAMES_80                                                           \
  HEDDLE_NAMES_64                                                                 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, " \
  "%79"
#define HEDDLE_NAMES_96                                                           \
  HEDDLE_NAMES_80                                                                 \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, " \
  "%95"
#define HEDDLE_OPERANDS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HEDDLE_OPERANDS_16(d, i)                                                     \
  HEDDLE_OPERANDS_4(d, i), HEDDLE_OPERANDS_4(d, i + 4), HEDDLE_OPERANDS_4(d, i + 8), \
      HEDDLE_OPERANDS_4(d, i + 12)
#define HEDDLE_OPERANDS_32(d, i) HEDDLE_OPERANDS_16(d, i), HEDDLE_OPERANDS_16(d, i + 16)
#define HEDDLE_OPERANDS_48(d, i) HEDDLE_OPERANDS_32(d, i), HEDDLE_OPERANDS_16(d, i + 32)
#define HEDDLE_OPERANDS_64(d, i) HEDDLE_OPERANDS_48(d, i), HEDDLE_OPERANDS_16(d, i + 48)
#define HEDDLE_OPERANDS_80(d, i) HEDDLE_OPERANDS_64(d, i), HEDDLE_OPERANDS_16(d, i + 64)
#define HEDDLE_OPERANDS_96(d, i) HEDDLE_OPERANDS_80(d, i), HEDDLE_OPERANDS_16(d, i + 80)

// The assembly text of a product of width `n`; it adds to its accumulators if `accumulate` is not
// 0.
#define HEDDLE_PRODUCT_TEXT(n, count, inputs, accumulate) \
  "{\n"                                                   \
  ".reg .pred p;\n"                                       \
  "setp.ne.b32 p, " accumulate                            \
  ", 0;\n"                                                \
  "wgmma.mma_async.sync.aligned.m64n" #n                  \
  "k16.f32.bf16.bf16 "                                    \
  "{" HEDDLE_NAMES_##count "}, " inputs                   \
                           ";\n"                          \
                           "}\n"

// d [64, 64] = a [64, 16] * b [16, 64], plus d if `accumulate`.
template <bool kTransposed>
__device__ inline void product_n64(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                   bool accumulate) {
  asm volatile(HEDDLE_PRODUCT_TEXT(64, 32, "{%32, %33, %34, %35}, %36, p, 1, 1, %38", "%37")
               : HEDDLE_OPERANDS_32(d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0),
                 "n"(kTransposed ? 1 : 0));
}

// d [64, 128] = a [64, 16] * b [16, 128], plus d if `accumulate`.
template <bool kTransposed>
__device__ inline void product_n128(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                    bool accumulate) {
  asm volatile(HEDDLE_PRODUCT_TEXT(128, 64, "{%64, %65, %66, %67}, %68, p, 1, 1, %70", "%69")
               : HEDDLE_OPERANDS_64(d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0),
                 "n"(kTransposed ? 1 : 0));
}

// d [64, N] = a [64, 16] * b [16, N], plus d if `accumulate`; both factors are in shared memory
// with rows along K. N is twice the length of d.
__device__ inline void product(float (&d)[16], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(HEDDLE_PRODUCT_TEXT(32, 16, "%16, %17, p, 1, 1, 0, 0", "%18")
               : HEDDLE_OPERANDS_16(d, 0)
               : "l"(a), "l"(b), "r"(accumulate ? 1 : 0));
}

__device__ inline void product(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(HEDDLE_PRODUCT_TEXT(64, 32, "%32, %33, p, 1, 1, 0, 0", "%34")
               : HEDDLE_OPERANDS_32(d, 0)
               : "l"(a), "l"(b), "r"(accumulate ? 1 : 0));
}

__device__ inline void product(float (&d)[48], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(HEDDLE_PRODUCT_TEXT(96, 48, "%48, %49, p, 1, 1, 0, 0", "%50")
               : HEDDLE_OPERANDS_48(d, 0)
               : "l"(a), "l"(b), "r"(accumulate ? 1 : 0));
}

__device__ inline void product(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(HEDDLE_PRODUCT_TEXT(128, 64, "%64, %65, p, 1, 1, 0, 0", "%66")
               : HEDDLE_OPERANDS_64(d, 0)
               : "l"(a), "l"(b), "r"(accumulate ? 1 : 0));
}

__device__ inline void product(float (&d)[80], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(HEDDLE_PRODUCT_TEXT(160, 80, "%80, %81, p, 1, 1, 0, 0", "%82")
               : HEDDLE_OPERANDS_80(d, 0)
               : "l"(a), "l"(b), "r"(accumulate ? 1 : 0));
}

__device__ inline void product(float (&d)[96], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(HEDDLE_PRODUCT_TEXT(192, 96, "%96, %97, p, 1, 1, 0, 0", "%98")
               : HEDDLE_OPERANDS_96(d, 0)
               : "l"(a), "l"(b), "r"(accumulate ? 1 : 0));
}

#undef HEDDLE_PRODUCT_TEXT
#undef HEDDLE_OPERANDS_96
#undef HEDDLE_OPERANDS_80
#undef HEDDLE_OPERANDS_64
#undef HEDDLE_OPERANDS_48
#undef HEDDLE_OPERANDS_32
#undef HEDDLE_OPERANDS_16
#undef HEDDLE_OPERANDS_4
#undef HEDDLE_NAMES_96
#undef HEDDLE_NAMES_80
#undef HEDDLE_NAMES_64
#undef HEDDLE_NAMES_48
#undef HEDDLE_NAMES_32
#undef HEDDLE_NAMES_16

}  // namespace heddle::ops::sm90

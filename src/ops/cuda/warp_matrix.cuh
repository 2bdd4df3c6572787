// SPDX-License-Identifier: Apache-2.0
// Products of a warp on small matrices of bf16 with fp32 sums, or of bytes (PTX mma.sync), matrix
// loads for them, and asynchronous copies to shared memory (PTX cp.async). From sm_80 on. All lanes
// of a warp call the products and the matrix loads, each with its part; a thread calls the copies
// for itself, 16 bytes each. multiply_bf16(): 4,096 flops. Used if there are fewer rows than the 64
// of sm90/wgmma.cuh, or on GPUs before Hopper.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

namespace heddle::ops {

// Loads four 8 x 8 matrices from shared memory: lane l passes the address of row l % 8 of matrix l
// / 8, and gets columns 2 * (l % 4) and the next of row l / 4 of each matrix.
__device__ inline void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// As load_matrices(), with each matrix transposed.
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// Transposes an 8 x 8 matrix that the lanes hold in one register each.
__device__ inline uint32_t transpose_matrix(uint32_t matrix) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
}

// d [16, 8] += a [16, 16] * b [16, 8]. Lane l has in d[0..1] and d[2..3] rows l / 4 and l / 4 + 8
// of d, columns 2 * (l % 4) and the next; of b it has column l / 4, rows 2 * (l % 4) and the next,
// and the same plus 8.
__device__ inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4],
                                     const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d [16, 8] += a [16, 32] * b [32, 8] for bytes; a is signed, b is signed if kSigned. Lane l has d
// as in multiply_bf16(); of rows l / 4 and l / 4 + 8 of a and column l / 4 of b it has bytes 4 * (l
// % 4) to 4 * (l % 4) + 3, and the same plus 16.
template <bool kSigned>
__device__ inline void multiply_bytes(int32_t (&d)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[2]) {
  if constexpr (kSigned) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// Rounds two fp32 numbers to bf16 and packs them into a register, the first in the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// Copies 16 bytes from global to shared memory, or writes zeros if not `real`. Both addresses must
// be 16-byte aligned, and `from` must be valid in any case.
__device__ inline void copy_async(void* to, const void* from, bool real) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(real ? 16 : 0)
               : "memory");
}

// Closes a group of the copies that this thread started.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the kOpen last committed groups of this thread are unfinished.
template <int kOpen>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

}  // namespace heddle::ops

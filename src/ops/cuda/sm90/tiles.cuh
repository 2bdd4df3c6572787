// SPDX-License-Identifier: Apache-2.0
// Tiles of 64 rows of 64 bf16 (8 KiB) in shared memory, swizzled as in wgmma.cuh, and transposing
// copies of a warpgroup's accumulators to and from them. A warp calls load_transposed() and
// store_transposed(): four 8 x 8 matrices, 512 bytes. 128 threads call group_barrier(). Used by the
// kernels for Hopper.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "ops/cuda/sm90/mbarrier.cuh"

namespace heddle::ops::sm90 {

inline constexpr int kWarpgroup = 128;  // threads of a warpgroup
inline constexpr int kTileBytes = 64 * 128;

// Address of the 16 bytes that contain column `column` (of 64) of row `row` of a swizzled tile.
__device__ inline uint8_t* swizzled(uint8_t* tile, int row, int column) {
  return tile + row * 128 + (((column / 8) ^ (row % 8)) * 16) + column % 8 * 2;
}

// Loads four transposed 8 x 8 matrices of bf16 from shared memory: lane l passes the address of row
// l % 8 of matrix l / 8.
__device__ inline void load_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ inline void store_transposed(void* row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ inline float2 unpack(uint32_t pair) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
}

// All threads of one warpgroup wait for each other. `group` is the index of the warpgroup, from 0.
__device__ inline void group_barrier(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kWarpgroup) : "memory");
}

}  // namespace heddle::ops::sm90

// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory by the copy engine (PTX cp.async.bulk): one thread starts
// them, a barrier (mbarrier.cuh) counts their bytes, and no register holds the data.
// copy_linear(): contiguous bytes. copy_box(): 64 columns of some rows of a tensor map, swizzled as
// the products of wgmma.cuh read them: 128 bytes a row. Used by kernels for Hopper whose tiles are
// contiguous; gathered rows go through warp_matrix.cuh.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "ops/cuda/sm90/mbarrier.cuh"

namespace heddle::ops::sm90 {

// Copies num_bytes contiguous bytes, a multiple of 16; both addresses must be 16-byte aligned.
__device__ inline void copy_linear(void* to, const void* from, uint32_t num_bytes,
                                   Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(num_bytes), "r"(shared_address(&barrier))
      : "memory");
}

// Copies the box of a two-dimensional tensor map whose first element is (row, column). Rows beyond
// the tensor are filled with zeros; their bytes are counted, too. `to` must be 1024-byte aligned.
__device__ inline void copy_box(void* to, const CUtensorMap& map, int32_t column, int32_t row,
                                Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier))
      : "memory");
}

// Makes what this thread wrote to shared memory visible to the copy engine and to wgmma.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace heddle::ops::sm90

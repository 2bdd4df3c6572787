// SPDX-License-Identifier: Apache-2.0
// Where the tokens of a sequence lie in a pool of pages: token t in row t % page_size of page
// pages[sequence * stride + t / page_size].
// Each thread calls for itself. Bytes: 4 a look-up, from the cache.
// Taken by all attention kernels; page_table_of() picks the table of the main or of the window
// pages.
#pragma once

#include <cstdint>

#include "ops/forward_context.h"

namespace heddle::ops {

struct PageTable {
  const int32_t* pages;  // [B, stride]
  int64_t stride;
  int64_t page_size;

  // The page of a token, and the token's place in it is token % page_size.
  [[nodiscard]] __device__ int64_t page_of(int64_t sequence, int64_t token) const {
    return pages[sequence * stride + token / page_size];
  }
};

// A page table of a batch (KvLayer::table), in memory of the device.
[[nodiscard]] inline PageTable page_table_of(const ForwardContext& forward, size_t table) {
  const DeviceBatch& batch = forward.batch;
  return {.pages = batch.page_tables[table],
          .stride = batch.page_table_stride,
          .page_size = forward.page_size};
}

// As ForwardContext::first_stored(), of each sequence.
[[nodiscard]] inline const int32_t* first_stored_of(const ForwardContext& forward, size_t table) {
  const DeviceBatch& batch = forward.batch;
  return table == 0 ? batch.kv_lens : batch.context_lens;
}

}  // namespace heddle::ops

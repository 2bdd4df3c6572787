// SPDX-License-Identifier: Apache-2.0
// PageTable: finds the tokens of a sequence in a pool of pages. Token t is row t % page_size of
// page pages[sequence * stride + t / page_size]. Each thread calls it for itself. Bytes: 4 a
// look-up, from the cache. Used by all attention kernels; page_table_of() selects the layer's
// table: the one for all tokens or one for a sliding window.
#pragma once

#include <cstdint>

#include "ops/forward_context.h"

namespace heddle::ops {

struct PageTable {
  const int32_t* pages;  // page ids [B, stride]
  int64_t stride;
  int64_t page_size;

  // The page that contains a token; the token's row in the page is token % page_size.
  [[nodiscard]] __device__ int64_t page_of(int64_t sequence, int64_t token) const {
    return pages[sequence * stride + token / page_size];
  }
};

// The table of a batch with index `table` (KvLayer::table), in device memory.
[[nodiscard]] inline PageTable page_table_of(const ForwardContext& forward, size_t table) {
  const DeviceBatch& batch = forward.batch;
  return {.pages = batch.page_tables[table],
          .stride = batch.page_table_stride,
          .page_size = forward.page_size};
}

// ForwardContext::first_stored() of all sequences, in device memory.
[[nodiscard]] inline const int32_t* first_stored_of(const ForwardContext& forward, size_t table) {
  const DeviceBatch& batch = forward.batch;
  return table == 0 ? batch.kv_lens : batch.context_lens;
}

}  // namespace heddle::ops

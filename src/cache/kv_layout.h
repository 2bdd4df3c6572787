// SPDX-License-Identifier: Apache-2.0
// The sizes of KV pages and recurrent states. A layout describes a group: layers whose KV rows or
// states have the same shape. A model may have several groups of each kind.
//
// Sizes are exact for layouts that pass validate(), which also ensures that products fit int64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <heddle/options.h>
#include <heddle/status.h>

#include "core/dtype.h"
#include "core/tensor.h"

namespace heddle::cache {

// K and V rows of the layers of one group. Per layer K is [P, S, Nkv, D] and V is [P, S, Nkv, Dv].
// Latent attention stores one row per token that is key and value at once: K [P, S, 1, D] and no V.
struct KvLayout {
  int64_t num_layers = 0;  // layers of the group; 0: the group stores nothing
  int32_t page_size = 16;  // S, tokens per page
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;              // D, numbers in the key row of one head
  std::optional<int64_t> value_dim;  // Dv; no value: the same as D; 0: values are a part of the
                                     // keys
  DType dtype = DType::kF32;

  // Numbers in a token's K row, and in its V row, of one layer; a V row may be empty.
  [[nodiscard]] int64_t k_width() const { return num_kv_heads * head_dim; }

  [[nodiscard]] int64_t v_width() const { return num_kv_heads * value_dim.value_or(head_dim); }

  // Error: kInvalidArgument, with the field that is out of range.
  [[nodiscard]] Status validate() const;

  // Bytes of one layer's K rows, and of its V rows, in one page.
  [[nodiscard]] int64_t k_bytes_per_layer_page() const {
    return bytes_of(dtype, page_size * k_width());
  }

  [[nodiscard]] int64_t v_bytes_per_layer_page() const {
    return bytes_of(dtype, page_size * v_width());
  }

  // Bytes of the smallest contiguous part of a page: one layer's K or V rows.
  [[nodiscard]] int64_t least_bytes_together() const {
    const int64_t v = v_bytes_per_layer_page();
    return v > 0 ? std::min(k_bytes_per_layer_page(), v) : k_bytes_per_layer_page();
  }

  // Bytes of K and V of a page over all layers of the group.
  [[nodiscard]] int64_t bytes_per_page() const {
    return num_layers * (k_bytes_per_layer_page() + v_bytes_per_layer_page());
  }

  [[nodiscard]] int64_t bytes_per_token() const { return bytes_per_page() / page_size; }
};

// One part of a layer's state: rows of the last dimension's width. The rows of an i8 part are
// followed by one fp32 scale per row (ops/linear_attention/snapshot_rows.h).
struct StatePartLayout {
  Shape shape;                // shape of one slot in one layer; the first of several dimensions may
                              // be 0
  DType dtype = DType::kF32;  // bf16 and i8 occur in snapshots only

  [[nodiscard]] int64_t num_rows() const;

  // Offset of the scales in bytes; formats without scales end there.
  [[nodiscard]] int64_t scales_offset() const;
  [[nodiscard]] int64_t bytes() const;
};

// The states of the layers of one group; every layer has all the parts.
struct StateLayout {
  int64_t num_layers = 0;
  std::vector<StatePartLayout> parts;

  // Error: kInvalidArgument, with the part that is out of range.
  [[nodiscard]] Status validate() const;

  [[nodiscard]] int64_t bytes_per_slot() const;
};

// Totals over groups whose pages share ids, or whose states share slots: each page or slot has
// bytes in all of them.
[[nodiscard]] int64_t bytes_per_page(std::span<const KvLayout> groups);
[[nodiscard]] int64_t bytes_per_slot(std::span<const StateLayout> groups);
[[nodiscard]] int64_t num_layers(std::span<const KvLayout> groups);
[[nodiscard]] int64_t num_layers(std::span<const StateLayout> groups);

// Bytes of the smallest contiguous part of a page in any group that has layers.
[[nodiscard]] int64_t least_bytes_together(std::span<const KvLayout> groups);

// Bytes of a region of a pool, which stores one layer's values of one kind: `bytes` rounded up to
// the system's memory pages, so that each region begins on one.
[[nodiscard]] constexpr int64_t region_bytes(int64_t bytes) {
  constexpr int64_t kMemoryPageBytes = 4096;
  return (bytes + kMemoryPageBytes - 1) / kMemoryPageBytes * kMemoryPageBytes;
}

// The element type of snapshots stored in this format.
[[nodiscard]] DType snapshot_dtype(StateDtype dtype);

}  // namespace heddle::cache

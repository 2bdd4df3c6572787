// SPDX-License-Identifier: Apache-2.0
// How large KV pages and recurrent states are. A layout describes a group: layers whose rows or
// states have the same shape. A model may have several groups of each kind.
//
// Sizes are exact for layouts that pass validate(), which also bounds every product to int64.
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

// K and V rows of the layers of one group: per layer K [P, S, Nkv, D] and V [P, S, Nkv, Dv]. Latent
// attention keeps one row per token that is key and value at once: K [P, S, 1, D] and no V.
struct KvLayout {
  int64_t num_layers = 0;  // 0: the group stores nothing
  int32_t page_size = 16;  // S, tokens of a page
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;              // D
  std::optional<int64_t> value_dim;  // Dv, without one D; 0: values are a part of the keys
  DType dtype = DType::kF32;

  // Channels of a token's K and V rows in one layer; V's may be 0.
  [[nodiscard]] int64_t k_width() const { return num_kv_heads * head_dim; }

  [[nodiscard]] int64_t v_width() const { return num_kv_heads * value_dim.value_or(head_dim); }

  // Error: kInvalidArgument, naming the field.
  [[nodiscard]] Status validate() const;

  // One layer's K rows, and its V rows, of one page.
  [[nodiscard]] int64_t k_bytes_per_layer_page() const {
    return bytes_of(dtype, page_size * k_width());
  }

  [[nodiscard]] int64_t v_bytes_per_layer_page() const {
    return bytes_of(dtype, page_size * v_width());
  }

  // The smallest piece of a page that lies together in memory: one layer's K or V rows.
  [[nodiscard]] int64_t least_bytes_together() const {
    const int64_t v = v_bytes_per_layer_page();
    return v > 0 ? std::min(k_bytes_per_layer_page(), v) : k_bytes_per_layer_page();
  }

  // K and V over all layers.
  [[nodiscard]] int64_t bytes_per_page() const {
    return num_layers * (k_bytes_per_layer_page() + v_bytes_per_layer_page());
  }

  [[nodiscard]] int64_t bytes_per_token() const { return bytes_per_page() / page_size; }
};

// One part of a layer's state: rows of the last dimension's width. i8 rows are followed by an fp32
// scale for each row (ops/linear_attention/snapshot_rows.h).
struct StatePartLayout {
  Shape shape;                // of one slot in one layer; the first of several dimensions may be 0
  DType dtype = DType::kF32;  // bf16 and i8 in snapshots only

  [[nodiscard]] int64_t num_rows() const;

  // Where the scales begin; with other formats that is the end.
  [[nodiscard]] int64_t scales_offset() const;
  [[nodiscard]] int64_t bytes() const;
};

// States of the layers of one group: each has all the parts.
struct StateLayout {
  int64_t num_layers = 0;
  std::vector<StatePartLayout> parts;

  // Error: kInvalidArgument, naming the part.
  [[nodiscard]] Status validate() const;

  [[nodiscard]] int64_t bytes_per_slot() const;
};

// Groups whose pages have the same ids, or whose states have the same slots: a page or a slot has
// its bytes in all of them.
[[nodiscard]] int64_t bytes_per_page(std::span<const KvLayout> groups);
[[nodiscard]] int64_t bytes_per_slot(std::span<const StateLayout> groups);
[[nodiscard]] int64_t num_layers(std::span<const KvLayout> groups);
[[nodiscard]] int64_t num_layers(std::span<const StateLayout> groups);

// The smallest piece of a page that lies together in memory, in groups that have layers.
[[nodiscard]] int64_t least_bytes_together(std::span<const KvLayout> groups);

// Bytes of a region of a pool, which holds one layer's values of one kind: `bytes`, up to the next
// whole page of the system's memory, so that each region begins with one.
[[nodiscard]] constexpr int64_t region_bytes(int64_t bytes) {
  constexpr int64_t kMemoryPageBytes = 4096;
  return (bytes + kMemoryPageBytes - 1) / kMemoryPageBytes * kMemoryPageBytes;
}

// The format of the elements of snapshots.
[[nodiscard]] DType snapshot_dtype(StateDtype dtype);

}  // namespace heddle::cache

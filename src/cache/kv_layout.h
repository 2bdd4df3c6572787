// SPDX-License-Identifier: Apache-2.0
// How large KV pages and recurrent states are. Layers without their part (a linear-attention layer
// has no KV, a full-attention layer no state) are not counted: num_layers is the number that has
// it.
//
// Sizes are exact for layouts that pass validate(), which also bounds every product to int64.
#pragma once

#include <cstdint>

#include <heddle/status.h>

#include "core/dtype.h"

namespace heddle::cache {

// K and V rows of the full-attention layers: per layer K [P, S, Nkv, D] and V [P, S, Nkv, D].
struct KvLayout {
  int64_t num_layers = 0;  // full-attention layers; 0: the model stores no KV
  int32_t page_size = 16;  // S, tokens of a page
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  DType dtype = DType::kF32;

  // Error: kInvalidArgument, naming the field.
  [[nodiscard]] Status validate() const;

  // One layer's K (or V) rows of one page.
  [[nodiscard]] int64_t bytes_per_layer_page() const;

  // K and V over all layers.
  [[nodiscard]] int64_t bytes_per_page() const { return 2 * num_layers * bytes_per_layer_page(); }

  [[nodiscard]] int64_t bytes_per_token() const { return bytes_per_page() / page_size; }
};

// State of the linear-attention layers: per layer a window [W-1, channels] of raw inputs before the
// convolution, oldest first, and a matrix [Nv, Dv, Dk] with Dk contiguous.
struct StateLayout {
  int64_t num_layers = 0;  // linear-attention layers; 0: the model has no recurrent state
  int64_t conv_channels = 0;
  int64_t conv_width = 0;  // W of the kernel; the window has W-1 columns
  int64_t num_value_heads = 0;
  int64_t value_dim = 0;
  int64_t key_dim = 0;
  DType conv_dtype = DType::kF32;
  DType recurrent_dtype = DType::kF32;

  [[nodiscard]] Status validate() const;

  [[nodiscard]] int64_t conv_bytes_per_layer() const;
  [[nodiscard]] int64_t recurrent_bytes_per_layer() const;

  [[nodiscard]] int64_t bytes_per_slot() const {
    return num_layers * (conv_bytes_per_layer() + recurrent_bytes_per_layer());
  }
};

}  // namespace heddle::cache

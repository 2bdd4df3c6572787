// SPDX-License-Identifier: Apache-2.0
// CacheNeeds: the memory that a sequence of a model keeps between steps. All KV layers of a model
// have rows of one shape, and all state layers have states of one shape: the pools are laid out so.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <heddle/status.h>

namespace heddle::models {

// One K row of num_heads * head_dim and one V row of num_heads * value_dim per token.
struct KvShape {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  std::optional<int64_t> value_dim = {};  // none: head_dim; 0: values are a part of the keys
};

// One convolution window [conv_width - 1, conv_channels] and one matrix per value head
// [value_dim, key_dim] per sequence.
struct StateShape {
  int64_t conv_channels = 0;
  int64_t conv_width = 0;
  int64_t num_value_heads = 0;
  int64_t value_dim = 0;
  int64_t key_dim = 0;

  friend bool operator==(const StateShape&, const StateShape&) = default;
};

// Layers are counted among their own kind.
struct CacheNeeds {
  // The KvShape of every KV layer.
  int64_t num_kv_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  std::optional<int64_t> kv_value_dim;

  // [num_kv_layers]: how many of the last tokens a layer reads, the current one included; 0: all.
  // When the token at position p is next, rows below p - window + 1 are dead in that layer.
  std::vector<int64_t> kv_windows;

  // [num_kv_layers]: below what the hub's files name a layer's scales: "model.layers.3.self_attn.".
  std::vector<std::string> kv_modules;

  // The StateShape of every state layer.
  int64_t num_state_layers = 0;
  int64_t conv_channels = 0;
  int64_t conv_width = 0;
  int64_t num_value_heads = 0;
  int64_t value_dim = 0;
  int64_t key_dim = 0;

  // Names the first layer whose shape differs from that of layer 0 of its kind; empty: all are
  // alike.
  std::string mixed_shapes = {};

  // Both add a layer and return its index. A shape that differs from that of layer 0 is noted in
  // mixed_shapes and otherwise ignored.
  int64_t add_kv_layer(const KvShape& shape, int64_t window);
  int64_t add_state_layer(const StateShape& shape);

  // Error: kUnimplemented, naming the layer and both shapes, where layers differ.
  [[nodiscard]] Status check_shapes() const;
};

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// CacheNeeds: the memory that a sequence of a model keeps between steps, as groups of layers. A
// page group has keys and values of one shape, a state group has recurrent states of one shape. A
// layer may be in one group of each kind, in one of either kind, or in none.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/weight_slice.h"
#include "core/tensor.h"
#include "ops/forward_context.h"

namespace heddle::models {

// One K row of num_heads * head_dim and one V row of num_heads * value_dim per token.
struct KvShape {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  std::optional<int64_t> value_dim = {};  // none: head_dim; 0: values are a part of the keys

  [[nodiscard]] int64_t value_width() const { return value_dim.value_or(head_dim); }

  friend bool operator==(const KvShape& a, const KvShape& b) {
    return a.num_heads == b.num_heads && a.head_dim == b.head_dim &&
           a.value_width() == b.value_width();
  }
};

// Layers with rows of one shape and with equal windows.
struct PageGroup {
  KvShape shape;
  // How many of the last tokens a layer reads, the current one included; 0: all. When the token at
  // position p is next, rows below p - window + 1 are dead in these layers.
  int64_t window = 0;
  int64_t num_layers = 0;
};

// One tensor of a layer's state, for example a convolution window or the matrices of a recurrence.
// A sequence without tokens has zeros.
struct StatePart {
  ops::StateTensor tensor = ops::StateTensor::kConv;
  Shape shape;              // shape for one sequence
  bool is_rounded = false;  // snapshots may be stored as bf16 or int8; others stay fp32

  friend bool operator==(const StatePart&, const StatePart&) = default;
};

// Layers whose states have the same parts.
struct StateGroup {
  std::vector<StatePart> parts;
  int64_t num_layers = 0;
};

// A layer as the `index`-th of a group.
struct GroupedLayer {
  size_t group = 0;
  int64_t index = 0;
};

// The "layer" attributes of a layer's ops: its indices into CacheNeeds::kv_layers and
// CacheNeeds::state_layers.
struct CacheLayer {
  int64_t pages = -1;   // -1: the layer has no pages
  int64_t states = -1;  // -1: the layer has no state
};

struct CacheNeeds {
  checkpoint::Rank rank = {};  // whose needs these are

  std::vector<PageGroup> page_groups;
  std::vector<StateGroup> state_groups;

  std::vector<GroupedLayer> kv_layers;     // the layers with pages, in the order of the model
  std::vector<GroupedLayer> state_layers;  // the layers with states, likewise

  // [num_kv_layers()]: the prefix of a layer's scales in the hub's files:
  // "model.layers.3.self_attn.".
  std::vector<std::string> kv_modules;

  // Both add a layer to the group that it fits, or to a new one, and return its index in kv_layers
  // or state_layers.
  int64_t add_kv_layer(const KvShape& shape, int64_t window);
  int64_t add_state_layer(std::vector<StatePart> parts);

  [[nodiscard]] int64_t num_kv_layers() const { return static_cast<int64_t>(kv_layers.size()); }

  [[nodiscard]] int64_t num_state_layers() const {
    return static_cast<int64_t>(state_layers.size());
  }

  // [num_kv_layers()]: PageGroup::window of each layer.
  [[nodiscard]] std::vector<int64_t> windows() const;
};

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// CacheNeeds: the memory that a sequence of a model needs between steps, as groups of layers. The
// layers of a page group have keys and values of one shape; those of a state group have recurrent
// states of one shape. A layer is in at most one page group and at most one state group.
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
  std::optional<int64_t> value_dim = {};  // width of a V row per head; none: head_dim; 0: no V
                                          // rows, values are a part of the keys

  [[nodiscard]] int64_t value_width() const { return value_dim.value_or(head_dim); }

  friend bool operator==(const KvShape& a, const KvShape& b) {
    return a.num_heads == b.num_heads && a.head_dim == b.head_dim &&
           a.value_width() == b.value_width();
  }
};

// Layers whose KV rows have one shape and whose windows are equal.
struct PageGroup {
  KvShape shape;
  // How many of the last tokens a layer reads, the current one included; 0: all. When the token at
  // position p is next, rows below p - window + 1 are dead in these layers.
  int64_t window = 0;
  int64_t num_layers = 0;
};

// One tensor of a layer's state, for example a convolution window or the matrices of a recurrence.
// The state of a sequence without tokens is zero.
struct StatePart {
  ops::StateTensor tensor = ops::StateTensor::kConv;
  Shape shape;              // shape of the tensor for one sequence
  bool is_rounded = false;  // true: snapshots may store it as bf16 or int8; false: always fp32

  friend bool operator==(const StatePart&, const StatePart&) = default;
};

// Layers whose states consist of the same parts.
struct StateGroup {
  std::vector<StatePart> parts;
  int64_t num_layers = 0;
};

// A layer's position in the groups: the `index`-th layer of group `group`.
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

  std::vector<GroupedLayer> kv_layers;     // the layers with pages, in model order
  std::vector<GroupedLayer> state_layers;  // the layers with states, in model order

  // [num_kv_layers()]: prefix of each layer's KV scales in the hub's files:
  // "model.layers.3.self_attn.".
  std::vector<std::string> kv_modules;

  // Each adds a layer to the matching group, or to a new one, and returns the layer's index in
  // kv_layers or state_layers.
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

// SPDX-License-Identifier: Apache-2.0
#include "models/cache_needs.h"

#include <fmt/format.h>

namespace heddle::models {

namespace {

std::string describe(const KvShape& shape) {
  return fmt::format("{} KV heads with keys of {} and values of {}", shape.num_heads,
                     shape.head_dim, shape.value_dim.value_or(shape.head_dim));
}

std::string describe(const StateShape& shape) {
  return fmt::format("a convolution of {} channels and width {}, {} value heads of [{}, {}]",
                     shape.conv_channels, shape.conv_width, shape.num_value_heads, shape.value_dim,
                     shape.key_dim);
}

bool are_alike(const KvShape& a, const KvShape& b) {
  return a.num_heads == b.num_heads && a.head_dim == b.head_dim &&
         a.value_dim.value_or(a.head_dim) == b.value_dim.value_or(b.head_dim);
}

std::string difference(const char* kind, int64_t layer, const std::string& its,
                       const std::string& first) {
  return fmt::format("{} layer {} has {}, layer 0 has {}", kind, layer, its, first);
}

}  // namespace

int64_t CacheNeeds::add_kv_layer(const KvShape& shape, int64_t window) {
  const KvShape first{.num_heads = num_kv_heads, .head_dim = head_dim, .value_dim = kv_value_dim};
  if (num_kv_layers == 0) {
    num_kv_heads = shape.num_heads;
    head_dim = shape.head_dim;
    kv_value_dim = shape.value_dim;
  } else if (!are_alike(shape, first) && mixed_shapes.empty()) {
    mixed_shapes = difference("KV", num_kv_layers, describe(shape), describe(first));
  }
  kv_windows.push_back(window);
  return num_kv_layers++;
}

int64_t CacheNeeds::add_state_layer(const StateShape& shape) {
  const StateShape first{.conv_channels = conv_channels,
                         .conv_width = conv_width,
                         .num_value_heads = num_value_heads,
                         .value_dim = value_dim,
                         .key_dim = key_dim};
  if (num_state_layers == 0) {
    conv_channels = shape.conv_channels;
    conv_width = shape.conv_width;
    num_value_heads = shape.num_value_heads;
    value_dim = shape.value_dim;
    key_dim = shape.key_dim;
  } else if (shape != first && mixed_shapes.empty()) {
    mixed_shapes = difference("state", num_state_layers, describe(shape), describe(first));
  }
  return num_state_layers++;
}

Status CacheNeeds::check_shapes() const {
  if (mixed_shapes.empty()) return {};
  return unimplemented(
      fmt::format("layers that keep memory of different shapes are not served: {}", mixed_shapes));
}

}  // namespace heddle::models

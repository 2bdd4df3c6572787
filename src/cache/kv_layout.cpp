// SPDX-License-Identifier: Apache-2.0
#include "cache/kv_layout.h"

#include <string_view>

#include <fmt/format.h>

#include "cache/page_allocator.h"
#include "core/tensor.h"

namespace heddle::cache {
namespace {

// Far beyond any model, and small enough that the product of all fields of a layout fits int64.
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxWidth = int64_t{1} << 14;
constexpr int64_t kMaxChannels = int64_t{1} << 24;

Status check_range(std::string_view layout, std::string_view field, int64_t value, int64_t low,
                   int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(
      fmt::format("{}: {} is {}; it must be from {} to {}", layout, field, value, low, high));
}

}  // namespace

Status KvLayout::validate() const {
  HEDDLE_RETURN_IF_ERROR(check_range("KV layout", "num_layers", num_layers, 0, kMaxLayers));
  if (!valid_page_size(page_size)) {
    return invalid_argument(
        fmt::format("page_size is {}; it must be a power of two from 1 to 128", page_size));
  }
  if (num_layers == 0) return {};
  HEDDLE_RETURN_IF_ERROR(check_range("KV layout", "num_kv_heads", num_kv_heads, 1, kMaxWidth));
  HEDDLE_RETURN_IF_ERROR(check_range("KV layout", "head_dim", head_dim, 1, kMaxWidth));
  return check_range("KV layout", "value_dim", value_dim.value_or(head_dim), 0, kMaxWidth);
}

Status StateLayout::validate() const {
  HEDDLE_RETURN_IF_ERROR(check_range("state layout", "num_layers", num_layers, 0, kMaxLayers));
  if (num_layers == 0) return {};
  HEDDLE_RETURN_IF_ERROR(
      check_range("state layout", "conv_channels", conv_channels, 1, kMaxChannels));
  HEDDLE_RETURN_IF_ERROR(check_range("state layout", "conv_width", conv_width, 1, kMaxLayers));
  HEDDLE_RETURN_IF_ERROR(
      check_range("state layout", "num_value_heads", num_value_heads, 1, kMaxWidth));
  HEDDLE_RETURN_IF_ERROR(check_range("state layout", "value_dim", value_dim, 1, kMaxWidth));
  return check_range("state layout", "key_dim", key_dim, 1, kMaxWidth);
}

int64_t StateLayout::conv_bytes_per_layer() const {
  return bytes_of(conv_dtype, conv_channels * (conv_width - 1));
}

int64_t StateLayout::scales_offset() const {
  const int64_t bytes = bytes_of(recurrent_dtype, num_value_heads * value_dim * key_dim);
  const int64_t alignment = bytes_of(DType::kF32, 1);
  return (bytes + alignment - 1) / alignment * alignment;
}

int64_t StateLayout::recurrent_bytes_per_layer() const {
  const int64_t scales = recurrent_dtype == DType::kI8 ? num_value_heads * value_dim : 0;
  return scales_offset() + bytes_of(DType::kF32, scales);
}

DType snapshot_dtype(StateDtype dtype) {
  switch (dtype) {
    case StateDtype::kFloat32:
      return DType::kF32;
    case StateDtype::kBfloat16:
      return DType::kBf16;
    case StateDtype::kInt8:
      return DType::kI8;
  }
  HEDDLE_CHECK(false && "a format of states");
}

}  // namespace heddle::cache

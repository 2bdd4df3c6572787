// SPDX-License-Identifier: Apache-2.0
#include "cache/kv_layout.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "cache/page_allocator.h"
#include "core/tensor.h"

namespace heddle::cache {
namespace {

// Limits far beyond any model, so small that the product of all fields of a layout fits int64.
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxWidth = int64_t{1} << 14;
constexpr int64_t kMaxParts = 16;
constexpr int64_t kMaxNumbers = int64_t{1} << 40;  // most elements of one part of a state

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

int64_t StatePartLayout::num_rows() const {
  const std::span<const int64_t> dims = shape.dims();
  return Shape(dims.first(dims.size() - 1)).num_elements();
}

int64_t StatePartLayout::scales_offset() const {
  const int64_t bytes = bytes_of(dtype, shape.num_elements());
  const int64_t alignment = bytes_of(DType::kF32, 1);
  return (bytes + alignment - 1) / alignment * alignment;
}

int64_t StatePartLayout::bytes() const {
  return scales_offset() + bytes_of(DType::kF32, dtype == DType::kI8 ? num_rows() : 0);
}

Status StateLayout::validate() const {
  HEDDLE_RETURN_IF_ERROR(check_range("state layout", "num_layers", num_layers, 0, kMaxLayers));
  if (num_layers == 0) return {};
  HEDDLE_RETURN_IF_ERROR(
      check_range("state layout", "number of parts", std::ssize(parts), 1, kMaxParts));
  for (size_t i = 0; i < parts.size(); ++i) {
    const Shape& shape = parts[i].shape;
    const Result<int64_t> numbers = checked_num_elements(shape.dims());
    const bool has_room = shape.rank() >= 1 && shape.rank() < Shape::kMaxRank;
    if (numbers.ok() && *numbers <= kMaxNumbers && has_room &&
        std::ranges::all_of(shape.dims().subspan(shape.rank() > 1 ? 1 : 0),
                            [](int64_t dim) { return dim >= 1; })) {
      continue;
    }
    return invalid_argument(
        fmt::format("state layout: part {} has the shape {}; it must have 1 to {} dimensions, all "
                    "but the first at least 1, and at most {} numbers",
                    i, shape.to_string(), Shape::kMaxRank - 1, kMaxNumbers));
  }
  return {};
}

int64_t StateLayout::bytes_per_slot() const {
  int64_t bytes = 0;
  for (const StatePartLayout& part : parts) bytes += part.bytes();
  return num_layers * bytes;
}

namespace {

template <typename Layout, typename Size>
int64_t sum(std::span<const Layout> groups, const Size& size) {
  int64_t total = 0;
  for (const Layout& group : groups) total += size(group);
  return total;
}

}  // namespace

int64_t bytes_per_page(std::span<const KvLayout> groups) {
  return sum(groups, [](const KvLayout& group) { return group.bytes_per_page(); });
}

int64_t bytes_per_slot(std::span<const StateLayout> groups) {
  return sum(groups, [](const StateLayout& group) { return group.bytes_per_slot(); });
}

int64_t num_layers(std::span<const KvLayout> groups) {
  return sum(groups, [](const KvLayout& group) { return group.num_layers; });
}

int64_t num_layers(std::span<const StateLayout> groups) {
  return sum(groups, [](const StateLayout& group) { return group.num_layers; });
}

int64_t least_bytes_together(std::span<const KvLayout> groups) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const KvLayout& group : groups) {
    if (group.num_layers > 0) least = std::min(least, group.least_bytes_together());
  }
  return least;
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

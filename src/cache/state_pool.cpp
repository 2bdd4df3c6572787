// SPDX-License-Identifier: Apache-2.0
#include "cache/state_pool.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::cache {

Result<StatePool> StatePool::create(device::Device& device, const StateLayout& layout,
                                    int64_t num_slots) {
  HEDDLE_RETURN_IF_ERROR(layout.validate());
  if (num_slots < 0 || num_slots >= std::numeric_limits<int32_t>::max()) {
    return invalid_argument(fmt::format("state pool: {} slots cannot be numbered", num_slots));
  }
  StatePool pool;
  pool.layout_ = layout;
  pool.num_slots_ = num_slots;
  if (layout.num_layers == 0) return pool;
  const int64_t most = std::numeric_limits<int64_t>::max() / 8 / layout.num_layers;
  if (layout.conv_bytes_per_layer() + layout.recurrent_bytes_per_layer() > most / (num_slots + 1)) {
    return resource_exhausted(fmt::format("state pool: {} slots of {} bytes are too many",
                                          num_slots, layout.bytes_per_slot()));
  }
  pool.conv_region_bytes_ = region_bytes(layout.conv_bytes_per_layer() * (num_slots + 1));
  pool.recurrent_region_bytes_ = region_bytes(layout.recurrent_bytes_per_layer() * (num_slots + 1));
  Result<device::Buffer> memory =
      device.allocate(layout.num_layers * (pool.conv_region_bytes_ + pool.recurrent_region_bytes_));
  if (!memory.ok()) return memory.status().with_context("state pool");
  pool.memory_ = std::move(memory).value();
  return pool;
}

std::byte* StatePool::recurrent_data(int64_t layer) const {
  HEDDLE_CHECK(layer >= 0 && layer < layout_.num_layers);
  return memory_.data() + layer * recurrent_region_bytes_;
}

std::byte* StatePool::conv_data(int64_t layer) const {
  HEDDLE_CHECK(layer >= 0 && layer < layout_.num_layers);
  return memory_.data() + layout_.num_layers * recurrent_region_bytes_ + layer * conv_region_bytes_;
}

MutableTensorView StatePool::conv(int64_t layer) {
  return {conv_data(layer), layout_.conv_dtype,
          Shape{num_slots_ + 1, layout_.conv_width - 1, layout_.conv_channels}};
}

MutableTensorView StatePool::recurrent(int64_t layer) {
  const Shape shape{num_slots_ + 1, layout_.num_value_heads, layout_.value_dim, layout_.key_dim};
  const int64_t slot_numbers =
      layout_.recurrent_bytes_per_layer() / bytes_of(layout_.recurrent_dtype, 1);
  return {recurrent_data(layer), layout_.recurrent_dtype, shape, slot_numbers};
}

MutableTensorView StatePool::scales(int64_t layer) {
  if (layout_.recurrent_dtype != DType::kI8) return {};
  return {recurrent_data(layer) + layout_.scales_offset(), DType::kF32,
          Shape{num_slots_ + 1, layout_.num_value_heads, layout_.value_dim},
          layout_.recurrent_bytes_per_layer() / bytes_of(DType::kF32, 1)};
}

Status StatePool::zero_slot(device::Stream& stream, int32_t slot) {
  HEDDLE_CHECK(slot >= 0 && slot <= num_slots_);
  const int64_t conv_bytes = layout_.conv_bytes_per_layer();
  const int64_t recurrent_bytes = layout_.recurrent_bytes_per_layer();
  for (int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    HEDDLE_RETURN_IF_ERROR(stream.zero(conv_data(layer) + slot * conv_bytes, conv_bytes));
    HEDDLE_RETURN_IF_ERROR(
        stream.zero(recurrent_data(layer) + slot * recurrent_bytes, recurrent_bytes));
  }
  return {};
}

Status StatePool::discard_slot(device::Stream& stream, int32_t slot) {
  HEDDLE_CHECK(slot >= 1 && slot <= num_slots_);
  const int64_t conv_bytes = layout_.conv_bytes_per_layer();
  const int64_t recurrent_bytes = layout_.recurrent_bytes_per_layer();
  for (int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    HEDDLE_RETURN_IF_ERROR(stream.discard(conv_data(layer) + slot * conv_bytes, conv_bytes));
    HEDDLE_RETURN_IF_ERROR(
        stream.discard(recurrent_data(layer) + slot * recurrent_bytes, recurrent_bytes));
  }
  return {};
}

Status StatePool::copy_slot(device::Stream& stream, int32_t from, int32_t to) {
  HEDDLE_CHECK(from >= 1 && from <= num_slots_ && to >= 1 && to <= num_slots_);
  if (from == to) return {};
  const int64_t conv_bytes = layout_.conv_bytes_per_layer();
  const int64_t recurrent_bytes = layout_.recurrent_bytes_per_layer();
  for (int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    std::byte* const conv = conv_data(layer);
    HEDDLE_RETURN_IF_ERROR(
        stream.copy(conv + to * conv_bytes, conv + from * conv_bytes, conv_bytes));
    std::byte* const recurrent = recurrent_data(layer);
    HEDDLE_RETURN_IF_ERROR(stream.copy(recurrent + to * recurrent_bytes,
                                       recurrent + from * recurrent_bytes, recurrent_bytes));
  }
  return {};
}

}  // namespace heddle::cache

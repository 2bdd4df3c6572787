// SPDX-License-Identifier: Apache-2.0
#include "cache/state_pool.h"

#include <limits>
#include <span>
#include <utility>
#include <vector>

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
  const int64_t most = std::numeric_limits<int64_t>::max() / 8;
  if (layout.bytes_per_slot() > most / (num_slots + 1)) {
    return resource_exhausted(fmt::format("state pool: {} slots of {} bytes are too many",
                                          num_slots, layout.bytes_per_slot()));
  }
  int64_t bytes = 0;
  for (const StatePartLayout& part : layout.parts) {
    pool.part_offsets_.push_back(bytes);
    bytes += layout.num_layers * region_bytes(part.bytes() * (num_slots + 1));
  }
  Result<device::Buffer> memory = device.allocate(bytes);
  if (!memory.ok()) return memory.status().with_context("state pool");
  pool.memory_ = std::move(memory).value();
  return pool;
}

StatePool::Region StatePool::region(int64_t layer, size_t part) const {
  HEDDLE_CHECK(layer >= 0 && layer < layout_.num_layers && part < layout_.parts.size());
  const int64_t slot_bytes = layout_.parts[part].bytes();
  const int64_t offset = part_offsets_[part] + layer * region_bytes(slot_bytes * (num_slots_ + 1));
  return {.base = memory_.data() + offset, .slot_bytes = slot_bytes};
}

namespace {

Shape with_slots(int64_t num_slots, std::span<const int64_t> dims) {
  std::vector<int64_t> all = {num_slots};
  all.insert(all.end(), dims.begin(), dims.end());
  return Shape(all);
}

}  // namespace

MutableTensorView StatePool::part(int64_t layer, size_t part) const {
  const StatePartLayout& layout = layout_.parts[part];
  const Region region = this->region(layer, part);
  return {region.base, layout.dtype, with_slots(num_slots_ + 1, layout.shape.dims()),
          region.slot_bytes / bytes_of(layout.dtype, 1)};
}

MutableTensorView StatePool::scales(int64_t layer, size_t part) const {
  const StatePartLayout& layout = layout_.parts[part];
  if (layout.dtype != DType::kI8) return {};
  const Region region = this->region(layer, part);
  const std::span<const int64_t> dims = layout.shape.dims();
  return {region.base + layout.scales_offset(), DType::kF32,
          with_slots(num_slots_ + 1, dims.first(dims.size() - 1)),
          region.slot_bytes / bytes_of(DType::kF32, 1)};
}

Status StatePool::discard_slot(device::Stream& stream, int32_t slot) {
  HEDDLE_CHECK(slot >= 1 && slot <= num_slots_);
  for (size_t part = 0; part < layout_.parts.size(); ++part) {
    for (int64_t layer = 0; layer < layout_.num_layers; ++layer) {
      const Region region = this->region(layer, part);
      HEDDLE_RETURN_IF_ERROR(
          stream.discard(region.base + slot * region.slot_bytes, region.slot_bytes));
    }
  }
  return {};
}

}  // namespace heddle::cache

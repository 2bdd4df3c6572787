// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_stage.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::checkpoint {

Result<WeightStage> WeightStage::create(device::Device& device, std::byte* arena,
                                        int64_t largest_piece) {
  WeightStage stage;
  stage.arena_ = arena;
  HEDDLE_ASSIGN_OR_RETURN(stage.stream_, device.create_stream());
  for (Slab& slab : stage.slabs_) {
    HEDDLE_ASSIGN_OR_RETURN(slab.memory,
                            device.allocate_pinned(std::max(kSlabBytes, largest_piece)));
    HEDDLE_ASSIGN_OR_RETURN(slab.copied, device.create_event());
  }
  return stage;
}

Result<std::byte*> WeightStage::reserve(int64_t num_bytes) {
  constexpr int64_t kPieceAlignment = 64;
  HEDDLE_CHECK_LE(num_bytes, slabs_[current_].memory.size());
  used_ = (used_ + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  if (used_ + num_bytes > slabs_[current_].memory.size()) {
    HEDDLE_RETURN_IF_ERROR(stream_->record(*slabs_[current_].copied));
    current_ = (current_ + 1) % slabs_.size();
    HEDDLE_RETURN_IF_ERROR(slabs_[current_].copied->wait());
    used_ = 0;
  }
  used_ += num_bytes;
  piece_ = num_bytes;
  return slabs_[current_].memory.data() + (used_ - num_bytes);
}

Status WeightStage::send(int64_t target_byte) {
  const std::byte* from = slabs_[current_].memory.data() + (used_ - piece_);
  return stream_->copy(arena_ + target_byte, from, piece_);
}

}  // namespace heddle::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_stage.h"

#include <algorithm>

#include "core/check.h"
#include "device/cuda/cuda_device.h"

namespace heddle::checkpoint {

Result<WeightStage> WeightStage::create(device::Device& device, std::byte* arena,
                                        int64_t largest_piece) {
  WeightStage stage;
  stage.device_ = &device;
  stage.arena_ = arena;
  stage.slab_bytes_ = std::max(kSlabBytes, largest_piece);
  HEDDLE_ASSIGN_OR_RETURN(stage.stream_, device.create_stream());
  for (Slab& slab : stage.slabs_) {
    HEDDLE_ASSIGN_OR_RETURN(slab.copied, device.create_event());
  }
  return stage;
}

Result<std::byte*> WeightStage::reserve(int64_t num_bytes) {
  constexpr int64_t kPieceAlignment = 64;
  HEDDLE_CHECK_LE(num_bytes, slab_bytes_);
  used_ = (used_ + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  if (used_ + num_bytes > slab_bytes_) {
    HEDDLE_RETURN_IF_ERROR(stream_->record(*slabs_[current_].copied));
    current_ = (current_ + 1) % slabs_.size();
    HEDDLE_RETURN_IF_ERROR(slabs_[current_].copied->wait());
    used_ = 0;
  }
  if (slabs_[current_].memory.size() == 0) {
    HEDDLE_ASSIGN_OR_RETURN(slabs_[current_].memory, device_->allocate_pinned(slab_bytes_));
  }
  used_ += num_bytes;
  piece_ = num_bytes;
  return slabs_[current_].memory.data() + (used_ - num_bytes);
}

Status WeightStage::send(int64_t target_byte, int64_t offset, int64_t num_bytes) {
  HEDDLE_CHECK_LE(offset + num_bytes, piece_);
  const std::byte* from = slabs_[current_].memory.data() + (used_ - piece_) + offset;
  return stream_->copy(arena_ + target_byte, from, num_bytes);
}

Status WeightStage::draw(const DrawnWeight& weight, const CopyJob& job) {
  return draw_weight_cuda(static_cast<device::CudaDevice&>(*device_), device::as_cuda(*stream_),
                          weight, job, arena_);
}

Status WeightStage::draw_rows(const DrawnRows& rows, const quant::PackedRows& target) {
  return draw_rows_cuda(static_cast<device::CudaDevice&>(*device_), device::as_cuda(*stream_), rows,
                        target);
}

}  // namespace heddle::checkpoint

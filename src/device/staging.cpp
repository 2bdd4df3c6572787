// SPDX-License-Identifier: Apache-2.0
#include "device/staging.h"

#include <algorithm>

namespace heddle::device {

namespace {

constexpr int64_t kLeastBytes = 4096;

// Grows at least to twice the old size, so that sizes that rise step by step rarely allocate.
int64_t grown(int64_t old_bytes, int64_t num_bytes) {
  return std::max({num_bytes, 2 * old_bytes, kLeastBytes});
}

}  // namespace

Status UploadRing::begin(Stream& stream, int64_t num_bytes) {
  current_ = (current_ + 1) % blocks_.size();
  if (num_bytes > memory_.size()) return grow(stream, grown(memory_.size(), num_bytes));
  if (const Event* copied = blocks_[current_].copied.get()) return copied->wait();
  return {};
}

Status UploadRing::grow(Stream& stream, int64_t num_bytes) {
  HEDDLE_RETURN_IF_ERROR(stream.synchronize());
  for (Block& block : blocks_) {
    HEDDLE_ASSIGN_OR_RETURN(block.pinned, device_->allocate_pinned(num_bytes));
    if (waits_ == Waits::kNever) continue;
    HEDDLE_ASSIGN_OR_RETURN(block.copied, device_->create_event());
  }
  HEDDLE_ASSIGN_OR_RETURN(memory_, device_->allocate(num_bytes));
  return {};
}

Status UploadRing::upload(Stream& stream, int64_t num_bytes) {
  HEDDLE_RETURN_IF_ERROR(stream.copy(memory_.data(), host(), num_bytes));
  Event* const copied = blocks_[current_].copied.get();
  return copied == nullptr ? Status() : stream.record(*copied);
}

Result<std::byte*> ReadbackRing::begin(int64_t num_bytes) {
  current_ = (current_ + 1) % blocks_.size();
  Buffer& block = blocks_[current_];
  if (num_bytes > block.size()) {
    HEDDLE_ASSIGN_OR_RETURN(block, device_->allocate_pinned(grown(block.size(), num_bytes)));
  }
  return block.data();
}

}  // namespace heddle::device

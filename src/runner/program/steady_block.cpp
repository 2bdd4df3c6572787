// SPDX-License-Identifier: Apache-2.0
#include "runner/program/steady_block.h"

namespace heddle::runner {

Status SteadyBlock::upload(device::Stream& stream) {
  if (asked_ == uploaded_) return {};
  uploaded_.clear();
  const auto num_bytes = static_cast<int64_t>(asked_.size());
  if (num_bytes > block_.size()) {
    HEDDLE_RETURN_IF_ERROR(stream.synchronize());  // the step before may still read its block
    for (device::Buffer& pinned : pinned_) {
      HEDDLE_ASSIGN_OR_RETURN(pinned, device_->allocate_pinned(2 * num_bytes));
    }
    HEDDLE_ASSIGN_OR_RETURN(block_, device_->allocate(2 * num_bytes));
  }
  std::byte* host = pinned_[next_].data();
  next_ = (next_ + 1) % pinned_.size();
  std::ranges::copy(asked_, host);
  HEDDLE_RETURN_IF_ERROR(stream.copy(block_.data(), host, num_bytes));
  uploaded_ = asked_;
  return {};
}

}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
#include "runner/program/steady_block.h"

namespace heddle::runner {

Status SteadyBlock::upload(device::Stream& stream) {
  if (asked_ == uploaded_) return {};
  uploaded_.clear();
  const auto num_bytes = static_cast<int64_t>(asked_.size());
  HEDDLE_RETURN_IF_ERROR(ring_.begin(stream, num_bytes));
  std::ranges::copy(asked_, ring_.host());
  HEDDLE_RETURN_IF_ERROR(ring_.upload(stream, num_bytes));
  uploaded_ = asked_;
  return {};
}

}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
#include "runner/drawn_feed.h"

#include <algorithm>
#include <cstring>

namespace heddle::runner {

void DrawnFeed::begin(int64_t num_logit_rows, const int32_t* drawn, const int32_t* drawn_ids) {
  num_logit_rows_ = num_logit_rows;
  drawn_ = drawn;
  drawn_ids_ = drawn_ids;
  fed_.clear();
  endings_.clear();
  ended_ = nullptr;
}

void DrawnFeed::add(ops::FedRow fed, std::span<const TokenId> endings) {
  fed.endings_begin = static_cast<int32_t>(endings_.size());
  fed.num_endings = static_cast<int32_t>(endings.size());
  endings_.insert(endings_.end(), endings.begin(), endings.end());
  fed_.push_back(fed);
}

Status DrawnFeed::reserve(int64_t num_bytes) {
  if (num_bytes <= block_.size()) return {};
  for (device::Buffer& pinned : pinned_) {
    HEDDLE_ASSIGN_OR_RETURN(pinned, device_->allocate_pinned(2 * num_bytes));
  }
  HEDDLE_ASSIGN_OR_RETURN(block_, device_->allocate(2 * num_bytes));
  return {};
}

Status DrawnFeed::enqueue(ops::Context& context, device::Stream& stream,
                          const ops::DeviceBatchUpload::Rows& rows) {
  if (fed_.empty()) return {};
  // All of it numbers of four bytes.
  const auto fed_bytes = static_cast<int64_t>(fed_.size() * sizeof(ops::FedRow));
  const auto endings_bytes = static_cast<int64_t>(endings_.size() * sizeof(int32_t));
  const int64_t ended_bytes = num_logit_rows_ * static_cast<int64_t>(sizeof(int32_t));
  const int64_t num_bytes = fed_bytes + endings_bytes + ended_bytes;
  if (num_bytes > block_.size()) {
    HEDDLE_RETURN_IF_ERROR(stream.synchronize());  // the step before may still read its block
    HEDDLE_RETURN_IF_ERROR(reserve(num_bytes));
  }
  std::byte* host = pinned_[next_].data();
  next_ = (next_ + 1) % pinned_.size();
  std::memcpy(host, fed_.data(), static_cast<size_t>(fed_bytes));
  if (endings_bytes > 0) {
    std::memcpy(host + fed_bytes, endings_.data(), static_cast<size_t>(endings_bytes));
  }
  std::fill_n(reinterpret_cast<int32_t*>(host + fed_bytes + endings_bytes), num_logit_rows_, 0);
  HEDDLE_RETURN_IF_ERROR(stream.copy(block_.data(), host, num_bytes));
  auto* ended = reinterpret_cast<int32_t*>(block_.data() + fed_bytes + endings_bytes);
  ended_ = ended;
  return ops::feed_drawn_cuda(
      static_cast<ops::CudaContext&>(context),
      {.fed = reinterpret_cast<const ops::FedRow*>(block_.data()),
       .num_fed = std::ssize(fed_),
       .endings = reinterpret_cast<const int32_t*>(block_.data() + fed_bytes),
       .drawn = drawn_,
       .drawn_ids = drawn_ids_,
       .ids = rows.ids,
       .row_sequences = rows.row_sequences,
       .state_slots = rows.state_slots,
       .ended = ended});
}

}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
#include "runner/drawn_feed.h"

#include <algorithm>
#include <span>

namespace heddle::runner {

namespace {

constexpr auto kNumberBytes = static_cast<int64_t>(sizeof(int32_t));  // of all there is in a block

}  // namespace

int64_t DrawnFeed::Block::endings_at() const {
  return std::ssize(fed) * static_cast<int64_t>(sizeof(ops::FedRow));
}

int64_t DrawnFeed::Block::ended_at() const {
  return endings_at() + std::ssize(endings) * kNumberBytes;
}

int64_t DrawnFeed::Block::num_bytes() const { return ended_at() + num_logit_rows * kNumberBytes; }

void DrawnFeed::begin(int64_t num_logit_rows, const int32_t* drawn, const int32_t* drawn_ids) {
  drawn_ = drawn;
  drawn_ids_ = drawn_ids;
  asked_.num_logit_rows = num_logit_rows;
  asked_.fed.clear();
  asked_.endings.clear();
  ended_ = nullptr;
}

void DrawnFeed::add(ops::FedRow fed, std::span<const TokenId> endings) {
  fed.endings_begin = static_cast<int32_t>(asked_.endings.size());
  fed.num_endings = static_cast<int32_t>(endings.size());
  asked_.endings.insert(asked_.endings.end(), endings.begin(), endings.end());
  asked_.fed.push_back(fed);
}

Status DrawnFeed::upload(device::Stream& stream) {
  uploaded_ = {};
  const int64_t num_bytes = asked_.num_bytes();
  if (num_bytes > block_.size()) {
    HEDDLE_RETURN_IF_ERROR(stream.synchronize());  // the step before may still read its block
    for (device::Buffer& pinned : pinned_) {
      HEDDLE_ASSIGN_OR_RETURN(pinned, device_->allocate_pinned(2 * num_bytes));
    }
    HEDDLE_ASSIGN_OR_RETURN(block_, device_->allocate(2 * num_bytes));
  }
  std::byte* host = pinned_[next_].data();
  next_ = (next_ + 1) % pinned_.size();
  std::ranges::copy(std::as_bytes(std::span(asked_.fed)), host);
  std::ranges::copy(std::as_bytes(std::span(asked_.endings)), host + asked_.endings_at());
  std::fill(host + asked_.ended_at(), host + num_bytes, std::byte{0});
  HEDDLE_RETURN_IF_ERROR(stream.copy(block_.data(), host, num_bytes));
  uploaded_ = asked_;
  return {};
}

Status DrawnFeed::enqueue(ops::Context& context, device::Stream& stream,
                          const ops::DeviceBatchUpload::Rows& rows) {
  if (asked_.fed.empty()) return {};
  if (asked_ != uploaded_) HEDDLE_RETURN_IF_ERROR(upload(stream));
  auto* ended = reinterpret_cast<int32_t*>(block_.data() + asked_.ended_at());
  ended_ = ended;
  return ops::feed_drawn_cuda(
      static_cast<ops::CudaContext&>(context),
      {.fed = reinterpret_cast<const ops::FedRow*>(block_.data()),
       .num_fed = std::ssize(asked_.fed),
       .endings = reinterpret_cast<const int32_t*>(block_.data() + asked_.endings_at()),
       .drawn = drawn_,
       .drawn_ids = drawn_ids_,
       .ids = rows.ids,
       .row_sequences = rows.row_sequences,
       .state_slots = rows.state_slots,
       .ended = ended});
}

}  // namespace heddle::runner

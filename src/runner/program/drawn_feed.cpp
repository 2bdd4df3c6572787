// SPDX-License-Identifier: Apache-2.0
#include "runner/program/drawn_feed.h"

namespace heddle::runner {

void DrawnFeed::begin(int64_t num_logit_rows, const int32_t* drawn, const int32_t* drawn_ids,
                      const int32_t* missing, const uint64_t* masks) {
  drawn_ = drawn;
  drawn_ids_ = drawn_ids;
  missing_ = missing;
  masks_ = masks;
  num_logit_rows_ = num_logit_rows;
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

// Rows that feed drawn tokens write their `ended` flag. In a step of the same layout the other
// flags are still zero.
Result<ops::FeedDrawnArgs> DrawnFeed::prepare(device::Stream& stream,
                                              const ops::DeviceBatchRows& rows) {
  if (fed_.empty()) return ops::FeedDrawnArgs();
  block_.begin();
  const int64_t fed_at = block_.add(std::span<const ops::FedRow>(fed_));
  const int64_t endings_at = block_.add(std::span<const int32_t>(endings_));
  const int64_t ended_at = block_.add_zeros<int32_t>(num_logit_rows_);
  HEDDLE_RETURN_IF_ERROR(block_.upload(stream));
  ended_ = block_.at<int32_t>(ended_at);
  return ops::FeedDrawnArgs{.fed = block_.at<const ops::FedRow>(fed_at),
                            .num_fed = std::ssize(fed_),
                            .endings = block_.at<const int32_t>(endings_at),
                            .drawn = drawn_,
                            .drawn_ids = drawn_ids_,
                            .masks = masks_,
                            .missing = missing_,
                            .rows = rows,
                            .ended = block_.at<int32_t>(ended_at)};
}

}  // namespace heddle::runner

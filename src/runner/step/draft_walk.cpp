// SPDX-License-Identifier: Apache-2.0
#include "runner/step/draft_walk.h"

namespace heddle::runner {

void DraftWalk::begin() {
  walked_.clear();
  endings_.clear();
  copies_if_all_.clear();
  missing_ = nullptr;
  copies_ = nullptr;
}

void DraftWalk::add(ops::WalkedDrafts walked, std::span<const TokenId> endings) {
  walked.endings_begin = static_cast<int32_t>(endings_.size());
  walked.num_endings = static_cast<int32_t>(endings.size());
  endings_.insert(endings_.end(), endings.begin(), endings.end());
  if (walked.draft_slot != 0) {
    walked.copy = static_cast<int32_t>(copies_if_all_.size());
    copies_if_all_.push_back({.from = walked.draft_slot, .to = walked.state_slot});
  }
  walked_.push_back(walked);
}

Status DraftWalk::enqueue(ops::Context& context, device::Stream& stream, const int32_t* ids,
                          int32_t* drawn) {
  block_.begin();
  const int64_t walked_at = block_.add(std::span<const ops::WalkedDrafts>(walked_));
  const int64_t endings_at = block_.add(std::span<const int32_t>(endings_));
  const int64_t missing_at = block_.add_zeros<int32_t>(std::ssize(walked_));
  const int64_t copies_at = block_.add_zeros<ops::IdCopy>(std::ssize(copies_if_all_));
  HEDDLE_RETURN_IF_ERROR(block_.upload(stream));
  num_told_ = {std::ssize(walked_), num_told_[0]};
  HEDDLE_ASSIGN_OR_RETURN(std::byte* const told,
                          told_.begin(bytes_of(DType::kI32, std::ssize(walked_))));
  missing_ = block_.at<const int32_t>(missing_at);
  copies_ = block_.at<const ops::IdCopy>(copies_at);
  return ops::walk_drafts_cuda(static_cast<ops::CudaContext&>(context),
                               {.sequences = block_.at<const ops::WalkedDrafts>(walked_at),
                                .num_sequences = std::ssize(walked_),
                                .endings = block_.at<const int32_t>(endings_at),
                                .ids = ids,
                                .drawn = drawn,
                                .missing = block_.at<int32_t>(missing_at),
                                .told = reinterpret_cast<int32_t*>(told),
                                .copies = block_.at<ops::IdCopy>(copies_at)});
}

std::span<const int32_t> DraftWalk::told(bool is_last) const {
  const std::byte* const block = told_.block(is_last ? told_.current() : told_.previous());
  return {reinterpret_cast<const int32_t*>(block), static_cast<size_t>(num_told_[is_last ? 0 : 1])};
}

}  // namespace heddle::runner

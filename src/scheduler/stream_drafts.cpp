// SPDX-License-Identifier: Apache-2.0
#include "scheduler/stream_drafts.h"

#include <algorithm>
#include <limits>

#include "core/check.h"

namespace heddle::scheduler {

bool StreamDrafts::serves(size_t num_streams) const {
  return drafter_ != nullptr && num_streams > 0 &&
         2 * static_cast<int64_t>(num_streams) <= options_.max_rows;
}

void StreamDrafts::collect(std::span<RunningSequence* const> streams, bool in_flight_too) {
  ranges_.clear();
  tokens_.clear();
  weighed_.clear();
  for (const RunningSequence* running : streams) {
    request::PlanRange& range = ranges_.emplace_back();
    range.begin = static_cast<int32_t>(tokens_.size());
    weighed_.push_back({.num_drafts = 0, .share = running->draft_share});
    const request::Sequence& sequence = *running->sequence;
    // The last token of a text is drawn and never computed.
    const int64_t stored = running->num_planned + 1;
    const int64_t most = std::min(options_.max_drafts, sequence.max_stored_tokens() - stored);
    const bool known = running->draws_in_flight == 0 || in_flight_too;
    if (most <= 0 || !known || sequence.constraint != nullptr) continue;
    drafter_->observe(sequence);
    drafter_->propose(sequence, most, proposed_);
    HEDDLE_CHECK_LE(std::ssize(proposed_), most);
    tokens_.insert(tokens_.end(), proposed_.begin(), proposed_.end());
    range.count = static_cast<int32_t>(proposed_.size());
    weighed_.back().num_drafts = range.count;
  }
}

int64_t StreamDrafts::depth(const speculative::DraftCost& cost) const {
  if (tokens_.empty()) return 0;
  return options_.adapts ? cost.best_depth(weighed_) : std::numeric_limits<int64_t>::max();
}

void StreamDrafts::propose(std::span<RunningSequence* const> streams, int64_t most_rows,
                           const speculative::DraftCost& cost) {
  ranges_.clear();
  if (!serves(streams.size())) return;
  collect(streams, /*in_flight_too=*/false);
  const int64_t deepest = depth(cost);
  int64_t rows = options_.max_rows;  // of streams with drafts, the one before them included
  for (request::PlanRange& range : ranges_) {
    const int64_t count =
        std::min({int64_t{range.count}, deepest, most_rows, std::max<int64_t>(rows - 1, 0)});
    range.count = static_cast<int32_t>(count);
    if (count == 0) continue;
    rows -= count + 1;
    most_rows -= count;
  }
}

std::span<const TokenId> StreamDrafts::of(size_t stream) const {
  if (stream >= ranges_.size()) return {};
  return std::span(tokens_).subspan(static_cast<size_t>(ranges_[stream].begin),
                                    static_cast<size_t>(ranges_[stream].count));
}

bool StreamDrafts::waits_for(std::span<RunningSequence* const> running,
                             const speculative::DraftCost& cost) {
  if (drafter_ == nullptr) return false;
  streams_.clear();
  for (RunningSequence* one : running) {
    if (one->drafts_in_flight > 0) return true;
    if (one->can_decode()) streams_.push_back(one);
  }
  if (!serves(streams_.size())) return false;
  if (std::ranges::none_of(streams_, [](const auto* one) { return one->draws_in_flight > 0; })) {
    return false;
  }
  collect(streams_, /*in_flight_too=*/true);
  return depth(cost) > 0;
}

void StreamDrafts::ended(const request::Sequence& sequence) {
  if (drafter_ == nullptr) return;
  drafter_->observe(sequence);
  drafter_->forget(sequence);
}

}  // namespace heddle::scheduler

// SPDX-License-Identifier: Apache-2.0
#include "runner/forward_batch.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::runner {

ForwardBatch::ForwardBatch(int64_t max_tokens, int64_t max_sequences,
                           int64_t max_pages_per_sequence, int32_t page_size)
    : max_tokens_(max_tokens),
      max_sequences_(max_sequences),
      page_table_width_(max_pages_per_sequence),
      page_size_(page_size) {
  const auto tokens = static_cast<size_t>(max_tokens);
  const auto sequences = static_cast<size_t>(max_sequences);
  ids_.reserve(tokens);
  positions_.reserve(tokens);
  logit_rows_.reserve(tokens);
  query_start_.reserve(sequences + 1);
  context_lens_.reserve(sequences);
  state_slots_.reserve(sequences);
  checkpoints_.reserve(sequences * 4);
  page_table_.resize(sequences * static_cast<size_t>(max_pages_per_sequence));
}

Status ForwardBatch::build(const request::BatchPlan& plan, LogitRows logit_rows) {
  ids_.clear();
  positions_.clear();
  query_start_.assign(1, 0);
  context_lens_.clear();
  state_slots_.clear();
  logit_rows_.clear();
  checkpoints_.clear();
  if (static_cast<int64_t>(plan.sequences.size()) > max_sequences_ ||
      plan.num_new_tokens() > max_tokens_) {
    return invalid_argument(fmt::format("a step of {} sequences and {} tokens; at most {} and {}",
                                        plan.sequences.size(), plan.num_new_tokens(),
                                        max_sequences_, max_tokens_));
  }
  for (const request::PlannedSequence& sequence : plan.sequences) {
    HEDDLE_RETURN_IF_ERROR(
        add(sequence).with_context(fmt::format("sequence {}", sequence.sequence_id)));
    const int32_t end = query_start_.back();
    if (logit_rows == LogitRows::kSampled && sequence.sample) logit_rows_.push_back(end - 1);
  }
  if (logit_rows == LogitRows::kAll) {
    for (int32_t row = 0; row < query_start_.back(); ++row) logit_rows_.push_back(row);
  }
  return {};
}

Status ForwardBatch::add(const request::PlannedSequence& sequence) {
  const auto count = static_cast<int64_t>(sequence.new_tokens.size());
  const int64_t end = sequence.context_tokens + count;
  const int64_t num_pages = (end + page_size_ - 1) / page_size_;
  if (count == 0) return invalid_argument("has no new tokens");
  if (num_pages > static_cast<int64_t>(sequence.pages.size()) || num_pages > page_table_width_) {
    return invalid_argument(fmt::format("needs {} pages for {} tokens, has {}; at most {}",
                                        num_pages, end, sequence.pages.size(), page_table_width_));
  }
  const auto index = static_cast<int64_t>(context_lens_.size());
  std::copy_n(sequence.pages.begin(), num_pages, page_table_.begin() + index * page_table_width_);
  for (const request::StateCheckpoint& checkpoint : sequence.checkpoints) {
    const int64_t tokens = checkpoint.tokens - sequence.context_tokens;
    if (tokens < 1 || tokens > count) {
      return invalid_argument(
          fmt::format("wants a checkpoint at token {}, the step covers {} to {}", checkpoint.tokens,
                      sequence.context_tokens, end));
    }
    checkpoints_.push_back({.sequence = static_cast<int32_t>(index),
                            .num_tokens = static_cast<int32_t>(tokens),
                            .slot = checkpoint.slot});
  }
  for (int64_t i = 0; i < count; ++i) {
    ids_.push_back(sequence.new_tokens[static_cast<size_t>(i)]);
    positions_.push_back(static_cast<int32_t>(sequence.context_tokens + i));
  }
  query_start_.push_back(static_cast<int32_t>(ids_.size()));
  context_lens_.push_back(static_cast<int32_t>(sequence.context_tokens));
  state_slots_.push_back(sequence.state_slot);
  return {};
}

ops::ForwardContext ForwardBatch::context(const Pools& pools) const {
  return {.query_start = query_start_,
          .context_lens = context_lens_,
          .page_table = page_table_,
          .page_table_width = page_table_width_,
          .page_size = page_size_,
          .state_slots = state_slots_,
          .checkpoints = checkpoints_,
          .logit_rows = logit_rows_,
          .kv_layers = pools.kv_layers(),
          .state_layers = pools.state_layers()};
}

}  // namespace heddle::runner

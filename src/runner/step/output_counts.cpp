// SPDX-License-Identifier: Apache-2.0
#include "runner/step/output_counts.h"

#include <algorithm>
#include <span>

namespace heddle::runner {

Result<OutputCounts> OutputCounts::create(device::Device& device, int64_t num_batch_slots,
                                          int64_t vocab_size, int64_t max_steps_in_flight) {
  OutputCounts counts(device, max_steps_in_flight);
  counts.vocab_size_ = vocab_size;
  counts.num_counted_.resize(static_cast<size_t>(num_batch_slots));
  HEDDLE_ASSIGN_OR_RETURN(counts.table_, device.allocate(bytes_for(num_batch_slots, vocab_size)));
  return counts;
}

Status OutputCounts::begin(device::Stream& stream, const request::BatchPlan& plan) {
  counted_.clear();
  for (const request::SlotStart& start : plan.starts) {
    if (!request::penalises(start.sampling)) continue;
    num_counted_[static_cast<size_t>(start.batch_slot)] = 0;
    HEDDLE_RETURN_IF_ERROR(stream.zero(
        row(start.batch_slot), vocab_size_ * static_cast<int64_t>(sizeof(ops::TokenCount))));
  }
  return {};
}

void OutputCounts::add(const request::PlannedSequence& sequence, const request::BatchSlot& slot,
                       int32_t first_row) {
  if (!request::penalises(slot.start.sampling)) return;
  int64_t& num_counted = num_counted_[static_cast<size_t>(sequence.batch_slot)];
  for (; num_counted < std::ssize(slot.output_tokens); ++num_counted) {
    counted_.push_back({.counts_row = sequence.batch_slot,
                        .token = slot.output_tokens[static_cast<size_t>(num_counted)]});
  }
  const int64_t of_prompt = slot.start.num_prompt_tokens - sequence.context_tokens;
  for (int64_t i = std::max<int64_t>(of_prompt, 0); i < sequence.num_new_tokens(); ++i) {
    counted_.push_back(
        {.counts_row = sequence.batch_slot, .id_row = first_row + static_cast<int32_t>(i)});
    ++num_counted;
  }
}

Status OutputCounts::enqueue(ops::Context& context, device::Stream& stream, const int32_t* ids) {
  if (counted_.empty()) return {};
  block_.begin();
  const int64_t at = block_.add(std::span<const ops::CountedToken>(counted_));
  HEDDLE_RETURN_IF_ERROR(block_.upload(stream));
  return ops::count_tokens(context, {.tokens = block_.at<const ops::CountedToken>(at),
                                     .num_tokens = std::ssize(counted_),
                                     .ids = ids,
                                     .counts = row(0),
                                     .vocab_size = vocab_size_});
}

}  // namespace heddle::runner

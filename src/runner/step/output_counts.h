// SPDX-License-Identifier: Apache-2.0
// OutputCounts: counts of each token in each sequence's output, in device memory, for the penalties
// of draws there (DeviceSampling). It follows BatchSlot::output_tokens but also counts tokens of
// steps in flight, which are read on the device.
//
//   begin() -> add() for each sequence that the step computes -> enqueue()
//
// Then the table counts the output up to the tokens that the step feeds. Accepted drafts are
// counted at the beginning of the sequence's next step; until then a row's draw adds its path to
// the counts.
//
// Threading: confined. Cost: one launch per step that has sequences with penalties, and that of
// SteadyBlock; 2 bytes per batch slot and token of the vocabulary. A sequence that starts clears
// its row.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "ops/context.h"
#include "ops/sampling/count_tokens.h"
#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "runner/program/steady_block.h"

namespace heddle::runner {

class OutputCounts {
 public:
  // Bytes of the table.
  [[nodiscard]] static int64_t bytes_for(int64_t num_batch_slots, int64_t vocab_size) {
    const int64_t num_counts = num_batch_slots * vocab_size;
    return (num_counts + 1) * static_cast<int64_t>(sizeof(ops::TokenCount));  // whole words
  }

  // Error: kResourceExhausted.
  static Result<OutputCounts> create(device::Device& device, int64_t num_batch_slots,
                                     int64_t vocab_size, int64_t max_steps_in_flight);

  // A step of the plan, which the batch slots have taken.
  Status begin(device::Stream& stream, const request::BatchPlan& plan);

  // The step computes the sequence's rows from `first_row` of its ids on. Nothing happens where the
  // sequence has no penalties.
  void add(const request::PlannedSequence& sequence, const request::BatchSlot& slot,
           int32_t first_row);

  // `ids`: of the step, in memory of the device.
  Status enqueue(ops::Context& context, device::Stream& stream, const int32_t* ids);

  // Behind enqueue(): [batch slots, V] in memory of the device, SampleRowsArgs::counts.
  [[nodiscard]] const ops::TokenCount* counts() const {
    return reinterpret_cast<const ops::TokenCount*>(table_.data());
  }

 private:
  OutputCounts(device::Device& device, int64_t max_steps_in_flight)
      : block_(device, max_steps_in_flight) {}

  [[nodiscard]] ops::TokenCount* row(int32_t batch_slot) {
    return reinterpret_cast<ops::TokenCount*>(table_.data()) + batch_slot * vocab_size_;
  }

  int64_t vocab_size_ = 0;
  device::Buffer table_;
  std::vector<int64_t> num_counted_;  // by batch slot: of the output, with tokens of running steps
  std::vector<ops::CountedToken> counted_;  // by the step
  SteadyBlock block_;                       // holds the arrays above
};

}  // namespace heddle::runner

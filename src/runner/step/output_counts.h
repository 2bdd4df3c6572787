// SPDX-License-Identifier: Apache-2.0
// OutputCounts: in device memory, how often each token occurs in each sequence's output, for
// penalties of draws on the device (DeviceSampling). It equals BatchSlot::output_tokens plus the
// tokens of steps in flight, which it reads on the device.
//
//   begin() -> add() for each sequence that the step computes -> enqueue()
//
// After enqueue() the table includes the tokens that the step feeds. Accepted drafts are counted at
// the beginning of the sequence's next step; until then each draw adds the drafts on its path
// itself.
//
// Threading: confined to one thread. Cost: one launch in a step that has sequences with penalties,
// and that of SteadyBlock; 2 bytes per batch slot and token of the vocabulary. A starting sequence
// clears its row.
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
  // Bytes of the table in device memory.
  [[nodiscard]] static int64_t bytes_for(int64_t num_batch_slots, int64_t vocab_size) {
    const int64_t num_counts = num_batch_slots * vocab_size;
    // Rounded up to whole words.
    return (num_counts + 1) * static_cast<int64_t>(sizeof(ops::TokenCount));
  }

  // Error: kResourceExhausted.
  static Result<OutputCounts> create(device::Device& device, int64_t num_batch_slots,
                                     int64_t vocab_size, int64_t max_steps_in_flight);

  // Begins a step of the plan, with which the batch slots have been updated.
  Status begin(device::Stream& stream, const request::BatchPlan& plan);

  // Counts the rows of the sequence, which begin at `first_row` of the step's ids. Does nothing for
  // a sequence without penalties.
  void add(const request::PlannedSequence& sequence, const request::BatchSlot& slot,
           int32_t first_row);

  // `ids` are the ids of the step, in device memory.
  Status enqueue(ops::Context& context, device::Stream& stream, const int32_t* ids);

  // The table [batch slots, V] in device memory, for SampleRowsArgs::counts. Valid after enqueue().
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
  std::vector<int64_t> num_counted_;  // by batch slot: output tokens counted, including tokens of
                                      // running steps
  std::vector<ops::CountedToken> counted_;  // tokens that this step counts
  SteadyBlock block_;                       // device copy of counted_
};

}  // namespace heddle::runner

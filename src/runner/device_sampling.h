// SPDX-License-Identifier: Apache-2.0
// DeviceSampling: the draws of a step, made where the logits are, so that a step brings back some
// bytes for each sequence and not a row of the vocabulary. Given equal logits the tokens are those
// of the Sampler, bit for bit (ops/sampling/sample_rows.h).
//
// Threading: confined. Cost: one copy to the device, three launches and one copy back a step;
// allocates nothing once its sizes have been seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "ops/context.h"
#include "ops/sampling/sample_rows.h"
#include "request/batch_slots.h"
#include "request/step_output.h"

namespace heddle::runner {

class DeviceSampling {
 public:
  // For steps of at most `max_rows` rows of logits. Error: kResourceExhausted.
  static Result<DeviceSampling> create(device::Device& device, int64_t max_rows,
                                       int64_t vocab_size);

  // Whether it draws for a sequence. Penalties count the output, which the host knows, and more
  // alternatives than kMostTopLogits have no room: the host's Sampler draws for those.
  [[nodiscard]] static bool draws_for(const request::SlotStart& start);

  // Begins a step with that many rows of logits, none of which is drawn from.
  void begin(int64_t num_rows);

  // Row `row` draws the token at `position` for the sequence in `slot`, out of those that `mask`
  // allows (PlannedSequence::masks).
  void add(int64_t row, const request::BatchSlot& slot, int64_t position,
           std::span<const uint32_t> mask);

  [[nodiscard]] bool draws(int64_t row) const { return rows_[static_cast<size_t>(row)].slot >= 0; }

  // Enqueues the draws of the rows that were added and the way back of their results. `logits`
  // [num_rows, V] f32, in memory of the device; rows with a bias are edited. `ended`: rows that
  // draw nothing after all (DrawnFeed), or null.
  Status enqueue(ops::Context& context, device::Stream& stream, const MutableTensorView& logits,
                 const int32_t* ended = nullptr);

  // In memory of the device, [max_rows]: the token of each row that was added, -1 where the draw
  // failed.
  [[nodiscard]] const int32_t* drawn() const {
    return reinterpret_cast<const int32_t*>(drawn_.data());
  }

  // Once the stream has done what enqueue() enqueued: whether a row that was added drew nothing
  // because of `ended`.
  [[nodiscard]] bool has_ended(int64_t row) const;

  // The result for a row that was added, once the stream has done what enqueue() enqueued: token,
  // logprob and error.
  void take(int64_t row, request::SampledToken& sampled) const;

 private:
  explicit DeviceSampling(device::Device& device) : device_(&device) {}

  Status reserve(int64_t upload_bytes);

  device::Device* device_;
  int64_t vocab_size_ = 0;
  bool wants_logprobs_ = false;
  std::vector<ops::SamplingRow> rows_;
  std::vector<ops::SamplingSlot> slots_;  // of each row
  std::vector<float> temperatures_;       // of the weights of each row
  std::vector<int32_t> forbidden_;
  std::vector<ops::TokenBias> biases_;
  std::vector<uint32_t> masks_;  // of the rows that have one, ceil(V / 32) words each
  device::Buffer upload_host_, upload_;
  device::Buffer results_host_, results_;  // SampledRow [R], then TopLogit [R, kMostTopLogits]
  device::Buffer workspace_;
  device::Buffer drawn_;
};

}  // namespace heddle::runner

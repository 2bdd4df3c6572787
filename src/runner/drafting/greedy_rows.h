// SPDX-License-Identifier: Apache-2.0
// GreedyRows: arguments of sample_rows (ops/sampling/sample_rows.h) that pick the best token of
// each row, for draft networks, whose rows belong to no request.
//
// Threading: confined to one thread. Cost: nothing after create().
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "device/device.h"
#include "ops/sampling/sample_rows.h"

namespace heddle::runner {

class GreedyRows {
 public:
  // For at most `max_rows` rows of logits; row r draws for slot r. `top_logprobs`: number of
  // alternatives, as in SamplingSlot; -1: only the token. Waits for the stream. Error:
  // kResourceExhausted.
  static Result<GreedyRows> create(device::Device& device, device::Stream& stream, int64_t max_rows,
                                   int64_t vocab_size, int32_t top_logprobs);

  // Arguments for the first `num_rows` rows of `logits` [R, V] f32. The caller sets the outputs for
  // drawn tokens and alternatives.
  [[nodiscard]] ops::SampleRowsArgs args(const MutableTensorView& logits, int64_t num_rows);

  // Results of the last launch with args(), by row, in device memory.
  [[nodiscard]] const ops::SampledRow* sampled() const {
    return reinterpret_cast<const ops::SampledRow*>(sampled_.data());
  }

 private:
  int64_t max_rows_ = 0;
  int64_t vocab_size_ = 0;
  ops::DrawKind kind_ = ops::DrawKind::kAny;
  device::Buffer table_;  // the rows' arguments: SamplingRow [max_rows], then SamplingSlot
                          // [max_rows]
  device::Buffer sampled_;
  device::Buffer workspace_;
};

}  // namespace heddle::runner

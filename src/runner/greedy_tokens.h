// SPDX-License-Identifier: Apache-2.0
// GreedyTokens: the most likely token of each row of logits, found where the logits are, so that a
// step of something that drafts brings back one number a row.
//
// Threading: confined. Cost: waits for the stream once; O(rows x vocabulary) on the host where that
// reads the logits, else as DeviceSampling.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <heddle/request.h>

#include "core/tensor.h"
#include "device/device.h"
#include "ops/context.h"
#include "request/batch_slots.h"
#include "runner/device_sampling.h"

namespace heddle::runner {

class GreedyTokens {
 public:
  // For at most `max_rows` rows of logits. Error: kResourceExhausted.
  static Result<GreedyTokens> create(device::Device& device, int64_t max_rows, int64_t vocab_size);

  // Of the first `num_rows` rows of `logits` [R, V] f32 in memory of the device; of equal logits
  // the first one counts.
  Status choose(ops::Context& context, device::Stream& stream, const MutableTensorView& logits,
                int64_t num_rows);

  // [num_rows] of the last choose(): sampling::kNoToken where logits are not numbers.
  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }

 private:
  GreedyTokens() = default;

  int64_t vocab_size_ = 0;
  std::optional<DeviceSampling> device_sampling_;  // where logits are not the host's
  request::BatchSlot greedy_;
  std::vector<TokenId> tokens_;
};

}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
#include "runner/greedy_tokens.h"

#include <algorithm>
#include <cmath>

#include "sampling/sampler.h"

namespace heddle::runner {

Result<GreedyTokens> GreedyTokens::create(device::Device& device, int64_t max_rows,
                                          int64_t vocab_size) {
  GreedyTokens greedy;
  greedy.vocab_size_ = vocab_size;
  greedy.greedy_.start.sampling.temperature = 0;
  greedy.tokens_.reserve(static_cast<size_t>(max_rows));
  if (device.kind() != device::DeviceKind::kCpu) {
    HEDDLE_ASSIGN_OR_RETURN(greedy.device_sampling_,
                            DeviceSampling::create(device, max_rows, vocab_size));
  }
  return greedy;
}

Status GreedyTokens::choose(ops::Context& context, device::Stream& stream,
                            const MutableTensorView& logits, int64_t num_rows) {
  tokens_.clear();
  if (device_sampling_ && num_rows > 0) {
    device_sampling_->begin(num_rows);
    for (int64_t row = 0; row < num_rows; ++row) {
      device_sampling_->add(row, greedy_, /*position=*/0, {});
    }
    HEDDLE_RETURN_IF_ERROR(device_sampling_->enqueue(context, stream, logits));
  }
  HEDDLE_RETURN_IF_ERROR(stream.synchronize());
  for (int64_t row = 0; row < num_rows; ++row) {
    TokenId token = sampling::kNoToken;
    if (device_sampling_) {
      request::SampledToken sampled;
      device_sampling_->take(row, sampled);
      if (sampled.error.ok()) token = sampled.token;
    } else {
      const std::span<const float> values(logits.row<float>(row), static_cast<size_t>(vocab_size_));
      const auto best = std::ranges::max_element(values);
      if (std::isfinite(*best)) token = static_cast<TokenId>(best - values.begin());
    }
    tokens_.push_back(token);
  }
  return {};
}

}  // namespace heddle::runner

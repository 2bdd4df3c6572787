// SPDX-License-Identifier: Apache-2.0
#include "runner/drafting/greedy_tokens.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "sampling/sampler.h"

namespace heddle::runner {

namespace {

static_assert(sampling::kNoToken == -1, "as in SampleRowsArgs::drawn");

TokenId best_token(std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits);
  const bool is_number = std::isfinite(*best) &&
                         std::ranges::none_of(logits, [](float logit) { return logit != logit; });
  return is_number ? static_cast<TokenId>(best - logits.begin()) : sampling::kNoToken;
}

}  // namespace

Result<GreedyTokens> GreedyTokens::create(device::Device& device, device::Stream& stream,
                                          int64_t max_steps, int64_t max_rows, int64_t vocab_size) {
  GreedyTokens greedy;
  greedy.max_steps_ = max_steps;
  greedy.max_rows_ = max_rows;
  greedy.vocab_size_ = vocab_size;
  const int64_t num_tokens = max_steps * max_rows;
  if (device.kind() == device::DeviceKind::kCpu) {
    greedy.tokens_.resize(static_cast<size_t>(num_tokens));
    return greedy;
  }
  OnDevice& own = greedy.on_device_.emplace();
  HEDDLE_ASSIGN_OR_RETURN(
      own.rows, GreedyRows::create(device, stream, max_rows, vocab_size, /*top_logprobs=*/-1));
  HEDDLE_ASSIGN_OR_RETURN(own.drawn, device.allocate(bytes_of(DType::kI32, num_tokens)));
  own.drawn_host = device::ReadbackRing(device, kNumTables);
  for (int64_t table = 0; table < kNumTables; ++table) {
    HEDDLE_RETURN_IF_ERROR(own.drawn_host.begin(bytes_of(DType::kI32, num_tokens)).status());
  }
  return greedy;
}

Status GreedyTokens::choose(ops::Context& context, device::Stream& stream,
                            const MutableTensorView& logits, int64_t num_rows) {
  HEDDLE_CHECK_LE(num_rows, max_rows_);
  HEDDLE_CHECK_LT(num_steps_, max_steps_);
  const int64_t first = num_steps_++ * max_rows_;
  if (num_rows == 0) return {};
  if (on_device_) {
    OnDevice& own = *on_device_;
    ops::SampleRowsArgs args = own.rows.args(logits, num_rows);
    args.drawn = reinterpret_cast<int32_t*>(own.drawn.data()) + first;
    return ops::sample_rows(context, args);
  }
  HEDDLE_RETURN_IF_ERROR(stream.synchronize());
  for (int64_t row = 0; row < num_rows; ++row) {
    tokens_[static_cast<size_t>(first + row)] =
        best_token({logits.row<float>(row), static_cast<size_t>(vocab_size_)});
  }
  return {};
}

const int32_t* GreedyTokens::drawn() const {
  HEDDLE_CHECK(on_device_.has_value());
  return reinterpret_cast<const int32_t*>(on_device_->drawn.data());
}

Status GreedyTokens::fetch(device::Stream& stream) {
  if (!on_device_ || num_steps_ == 0) return {};
  const int64_t num_bytes = bytes_of(DType::kI32, num_steps_ * max_rows_);
  HEDDLE_ASSIGN_OR_RETURN(std::byte* const table, on_device_->drawn_host.begin(num_bytes));
  return stream.copy(table, on_device_->drawn.data(), num_bytes);
}

TokenId GreedyTokens::token(int32_t place, int32_t table) const {
  if (!on_device_) return tokens_[static_cast<size_t>(place)];
  const std::byte* const host = on_device_->drawn_host.block(static_cast<size_t>(table));
  return reinterpret_cast<const int32_t*>(host)[place];
}

}  // namespace heddle::runner

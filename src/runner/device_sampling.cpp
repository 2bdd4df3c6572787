// SPDX-License-Identifier: Apache-2.0
#include "runner/device_sampling.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "sampling/sampler.h"
#include "sampling/sampling_slot.h"

namespace heddle::runner {

namespace {

constexpr int64_t kAlignment = 16;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t results_bytes(int64_t rows) {
  return rows * static_cast<int64_t>(sizeof(ops::SampledRow) +
                                     ops::kMostTopLogits * sizeof(ops::TopLogit));
}

}  // namespace

Result<DeviceSampling> DeviceSampling::create(device::Device& device, int64_t max_rows,
                                              int64_t vocab_size) {
  DeviceSampling sampling(device);
  sampling.vocab_size_ = vocab_size;
  HEDDLE_ASSIGN_OR_RETURN(sampling.results_host_, device.allocate_pinned(results_bytes(max_rows)));
  HEDDLE_ASSIGN_OR_RETURN(sampling.results_, device.allocate(results_bytes(max_rows)));
  HEDDLE_ASSIGN_OR_RETURN(sampling.scored_logits_,
                          device.allocate_pinned(bytes_of(DType::kF32, max_rows)));
  HEDDLE_ASSIGN_OR_RETURN(sampling.workspace_,
                          device.allocate(ops::sample_rows_workspace_bytes(max_rows, vocab_size)));
  HEDDLE_ASSIGN_OR_RETURN(sampling.drawn_, device.allocate(bytes_of(DType::kI32, max_rows)));
  return sampling;
}

bool DeviceSampling::draws_for(const request::SlotStart& start) {
  return !request::penalises(start.sampling) && start.top_logprobs <= ops::kMostTopLogits;
}

void DeviceSampling::begin(int64_t num_rows) {
  const auto count = static_cast<size_t>(num_rows);
  rows_.assign(count, {});
  slots_.assign(count, {});
  temperatures_.assign(count, 1.0f);
  forbidden_.clear();
  biases_.clear();
  masks_.clear();
  scored_.clear();
  wants_logprobs_ = false;
}

void DeviceSampling::add(int64_t row, const request::BatchSlot& slot, int64_t position,
                         std::span<const uint32_t> mask) {
  const auto index = static_cast<size_t>(row);
  const request::SlotStart& start = slot.start;
  HEDDLE_CHECK(draws_for(start));
  rows_[index] = {.slot = static_cast<int32_t>(row), .position = position, .publish = 1};
  if (!mask.empty()) {
    const auto num_words = static_cast<size_t>((vocab_size_ + 31) / 32);
    rows_[index].mask_row = static_cast<int32_t>(masks_.size() / num_words);
    const std::span<const uint32_t> used = mask.first(std::min(mask.size(), num_words));
    masks_.insert(masks_.end(), used.begin(), used.end());
    masks_.resize(masks_.size() + num_words - used.size());  // tokens beyond the mask
  }
  ops::SamplingSlot& own = slots_[index];
  own = sampling::sampling_slot(start.sampling, start.seed, start.choice_index, vocab_size_);
  temperatures_[index] = sampling::weight_temperature(start.sampling);
  if (start.return_logprobs) own.top_logprobs = start.top_logprobs;
  wants_logprobs_ |= start.return_logprobs;
  const std::span<const TokenId> forbidden = slot.forbidden_tokens(position);
  own.min_length = start.min_length;
  own.forbidden_begin = static_cast<int32_t>(forbidden_.size());
  own.num_forbidden = static_cast<int32_t>(forbidden.size());
  forbidden_.insert(forbidden_.end(), forbidden.begin(), forbidden.end());
  own.biases_begin = static_cast<int32_t>(biases_.size());
  own.num_biases = static_cast<int32_t>(start.sampling.logit_bias.size());
  for (const auto& [token, bias] : start.sampling.logit_bias) biases_.push_back({token, bias});
}

void DeviceSampling::add_scored(int64_t row, TokenId token, int64_t position,
                                int32_t top_logprobs) {
  HEDDLE_CHECK(token >= 0 && token < vocab_size_ && top_logprobs <= ops::kMostTopLogits);
  const auto index = static_cast<size_t>(row);
  rows_[index] = {.slot = static_cast<int32_t>(row), .position = position};
  slots_[index] = sampling::sampling_slot({.temperature = 0}, 0, 0, vocab_size_);
  slots_[index].top_logprobs = top_logprobs;
  scored_.push_back({.row = row, .token = token});
  wants_logprobs_ = true;
}

Status DeviceSampling::reserve(int64_t upload_bytes) {
  if (upload_bytes <= upload_.size()) return {};
  HEDDLE_ASSIGN_OR_RETURN(upload_host_, device_->allocate_pinned(2 * upload_bytes));
  HEDDLE_ASSIGN_OR_RETURN(upload_, device_->allocate(2 * upload_bytes));
  return {};
}

Status DeviceSampling::enqueue(ops::Context& context, device::Stream& stream,
                               const MutableTensorView& logits, const int32_t* ended) {
  if (std::ranges::none_of(rows_, [](const auto& row) { return row.slot >= 0; })) return {};
  const auto R = std::ssize(rows_);
  int64_t used = 0;
  const auto place = [&](const auto& values) {
    const int64_t here = used;
    used += aligned(std::ssize(values) * static_cast<int64_t>(sizeof(values[0])));
    return here;
  };
  const int64_t rows_at = place(rows_), slots_at = place(slots_);
  const int64_t forbidden_at = place(forbidden_), biases_at = place(biases_);
  const int64_t masks_at = place(masks_);
  HEDDLE_RETURN_IF_ERROR(reserve(used));
  const auto write = [&](const auto& values, int64_t at) {
    if (!values.empty()) {
      std::memcpy(upload_host_.data() + at, values.data(), values.size() * sizeof(values[0]));
    }
  };
  write(rows_, rows_at);
  write(slots_, slots_at);
  write(forbidden_, forbidden_at);
  write(biases_, biases_at);
  write(masks_, masks_at);
  HEDDLE_RETURN_IF_ERROR(stream.copy(upload_.data(), upload_host_.data(), used));

  auto* sampled = reinterpret_cast<ops::SampledRow*>(results_.data());
  auto* top_logits = reinterpret_cast<ops::TopLogit*>(sampled + R);
  HEDDLE_RETURN_IF_ERROR(ops::sample_rows(
      context, {.logits = logits,
                .rows = reinterpret_cast<const ops::SamplingRow*>(upload_.data() + rows_at),
                .slots = reinterpret_cast<const ops::SamplingSlot*>(upload_.data() + slots_at),
                .forbidden = reinterpret_cast<const int32_t*>(upload_.data() + forbidden_at),
                .biases = reinterpret_cast<const ops::TokenBias*>(upload_.data() + biases_at),
                .masks = reinterpret_cast<const uint32_t*>(upload_.data() + masks_at),
                .ended = ended,
                .drawn = reinterpret_cast<int32_t*>(drawn_.data()),
                .sampled = sampled,
                .top_logits = wants_logprobs_ ? top_logits : nullptr,
                .workspace = workspace_.bytes()}));
  const int64_t wanted =
      wants_logprobs_ ? results_bytes(R) : R * static_cast<int64_t>(sizeof(ops::SampledRow));
  HEDDLE_RETURN_IF_ERROR(fetch_scored_logits(stream, logits));
  return stream.copy(results_host_.data(), results_.data(), wanted);
}

Status DeviceSampling::fetch_scored_logits(device::Stream& stream,
                                           const MutableTensorView& logits) {
  int64_t at = 0;
  for (const Scored& scored : scored_) {
    const std::byte* from = logits.as<std::byte>() +
                            bytes_of(DType::kF32, scored.row * logits.row_stride + scored.token);
    HEDDLE_RETURN_IF_ERROR(stream.copy(scored_logits_.data() + at, from, bytes_of(DType::kF32, 1)));
    at += bytes_of(DType::kF32, 1);
  }
  return {};
}

const ops::SampledRow& DeviceSampling::result(int64_t row) const {
  HEDDLE_CHECK(draws(row));
  return reinterpret_cast<const ops::SampledRow*>(results_host_.data())[row];
}

void DeviceSampling::append_top(int64_t row, const sampling::LogSoftmax& log_softmax,
                                TokenLogprob& logprob) const {
  const auto* results = reinterpret_cast<const ops::SampledRow*>(results_host_.data());
  const auto* top =
      reinterpret_cast<const ops::TopLogit*>(results + rows_.size()) + row * ops::kMostTopLogits;
  for (int32_t i = 0; i < results[row].num_top_logits; ++i) {
    logprob.top.emplace_back(top[i].token, log_softmax(top[i].logit));
  }
}

bool DeviceSampling::has_ended(int64_t row) const {
  return result(row).outcome == ops::SampleOutcome::kSkipped;
}

void DeviceSampling::take(int64_t row, request::SampledToken& sampled) const {
  const auto index = static_cast<size_t>(row);
  const ops::SampledRow& result = this->result(row);
  sampled.error = sampling::outcome_status(result.outcome, rows_[index].position);
  sampled.token = sampled.error.ok() ? result.token : 0;
  if (slots_[index].top_logprobs < 0 || !sampled.error.ok()) return;
  const sampling::LogSoftmax log_softmax(result.max, temperatures_[index], result.total);
  sampled.logprob.token = result.token;
  sampled.logprob.logprob = log_softmax(result.logit);
  append_top(row, log_softmax, sampled.logprob);
}

void DeviceSampling::take_scored(size_t index, request::ScoredToken& scored) const {
  const Scored& own = scored_[index];
  const ops::SampledRow& result = this->result(own.row);
  scored.error =
      sampling::outcome_status(result.outcome, rows_[static_cast<size_t>(own.row)].position);
  if (!scored.error.ok()) return;
  const sampling::LogSoftmax log_softmax(result.max, 1.0f, result.total);
  scored.logprob.token = own.token;
  scored.logprob.logprob =
      log_softmax(reinterpret_cast<const float*>(scored_logits_.data())[index]);
  append_top(own.row, log_softmax, scored.logprob);
}

}  // namespace heddle::runner

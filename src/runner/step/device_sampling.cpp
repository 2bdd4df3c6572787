// SPDX-License-Identifier: Apache-2.0
#include "runner/step/device_sampling.h"

#include <algorithm>
#include <atomic>
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
  HEDDLE_RETURN_IF_ERROR(sampling.results_.begin(results_bytes(max_rows)).status());
  HEDDLE_RETURN_IF_ERROR(sampling.fetched_logits_.begin(bytes_of(DType::kF32, max_rows)).status());
  HEDDLE_ASSIGN_OR_RETURN(sampling.workspace_,
                          device.allocate(ops::sample_rows_workspace_bytes(max_rows, vocab_size)));
  HEDDLE_ASSIGN_OR_RETURN(sampling.drawn_, device.allocate(bytes_of(DType::kI32, max_rows)));
  return sampling;
}

void DeviceSampling::begin(int64_t num_rows) {
  const auto count = static_cast<size_t>(num_rows);
  asked_.clear();
  asked_.rows.assign(count, {});
  asked_.slots.assign(count, {});
  temperatures_.assign(count, 1.0f);
  scored_.clear();
  row_logits_.assign(count, {});
  fetched_.clear();
  wants_logprobs_ = false;
  tells_ = false;
}

void DeviceSampling::add(int64_t row, const request::BatchSlot& slot, int64_t position,
                         std::span<const uint32_t> mask, const RowOutput& output) {
  const auto index = static_cast<size_t>(row);
  const request::SlotStart& start = slot.start;
  HEDDLE_CHECK_LE(start.top_logprobs, ops::kMostTopLogits);
  asked_.rows[index] = {.slot = static_cast<int32_t>(row), .position = position, .publish = 1};
  if (!mask.empty()) {
    const auto num_words = static_cast<size_t>((vocab_size_ + 31) / 32);
    asked_.rows[index].mask_row = static_cast<int32_t>(asked_.masks.size() / num_words);
    const std::span<const uint32_t> used = mask.first(std::min(mask.size(), num_words));
    asked_.masks.insert(asked_.masks.end(), used.begin(), used.end());
    // Tokens beyond the mask are not allowed.
    asked_.masks.resize(asked_.masks.size() + num_words - used.size());
  }
  ops::SamplingSlot& own = asked_.slots[index];
  own = sampling::sampling_slot(start.sampling, start.seed, start.choice_index, vocab_size_);
  temperatures_[index] = sampling::weight_temperature(start.sampling);
  if (request::penalises(start.sampling)) {
    own.counts_row = output.counts_row;
    asked_.rows[index].path_begin = output.path_begin;
    asked_.rows[index].path = output.path;
  }
  if (start.return_logprobs) {
    own.top_logprobs = start.top_logprobs;
    wants_logprobs_ = true;
    list(row, slot.logprob_tokens);
  }
  const std::span<const TokenId> forbidden = slot.forbidden_tokens(position);
  own.min_length = start.min_length;
  own.forbidden_begin = static_cast<int32_t>(asked_.forbidden.size());
  own.num_forbidden = static_cast<int32_t>(forbidden.size());
  asked_.forbidden.insert(asked_.forbidden.end(), forbidden.begin(), forbidden.end());
  own.biases_begin = static_cast<int32_t>(asked_.biases.size());
  own.num_biases = static_cast<int32_t>(start.sampling.logit_bias.size());
  for (const auto& [token, bias] : start.sampling.logit_bias)
    asked_.biases.push_back({token, bias});
}

void DeviceSampling::add_scored(int64_t row, TokenId token, int64_t position, int32_t top_logprobs,
                                std::span<const TokenId> listed) {
  HEDDLE_CHECK(token >= 0 && token < vocab_size_ && top_logprobs <= ops::kMostTopLogits);
  const auto index = static_cast<size_t>(row);
  asked_.rows[index] = {.slot = static_cast<int32_t>(row), .position = position};
  asked_.slots[index] = sampling::sampling_slot({.temperature = 0}, 0, 0, vocab_size_);
  asked_.slots[index].top_logprobs = top_logprobs;
  scored_.push_back(row);
  fetched_.push_back({.row = row, .token = token});
  wants_logprobs_ = true;
  list(row, listed);
}

void DeviceSampling::list(int64_t row, std::span<const TokenId> tokens) {
  row_logits_[static_cast<size_t>(row)] = {.begin = fetched_.size(), .num_listed = tokens.size()};
  for (const TokenId token : tokens) fetched_.push_back({.row = row, .token = token});
}

void DeviceSampling::Asked::clear() {
  rows.clear();
  slots.clear();
  forbidden.clear();
  biases.clear();
  masks.clear();
}

ops::DrawKind DeviceSampling::Asked::kind() const {
  auto kind = ops::DrawKind::kBest;
  for (const ops::SamplingRow& row : rows) {
    if (row.slot < 0) continue;
    kind = std::min(kind, ops::draw_kind(slots[static_cast<size_t>(row.slot)]));
  }
  return kind;
}

std::optional<int64_t> DeviceSampling::Asked::shift_from(const Asked& earlier) const {
  if (rows.size() != earlier.rows.size()) return std::nullopt;
  std::optional<int64_t> shift;
  for (size_t i = 0; i < rows.size(); ++i) {
    ops::SamplingRow row = rows[i];
    if (row.slot >= 0) {
      if (!shift) shift = row.position - earlier.rows[i].position;
      row.position -= *shift;
    }
    if (row != earlier.rows[i]) return std::nullopt;
  }
  const bool alike = slots == earlier.slots && forbidden == earlier.forbidden &&
                     biases == earlier.biases && masks == earlier.masks;
  return alike ? shift : std::nullopt;
}

DeviceSampling::Offsets DeviceSampling::Offsets::of(const Asked& asked) {
  Offsets offsets;
  const auto place = [&](const auto& values) {
    const int64_t here = offsets.end;
    offsets.end += aligned(std::ssize(values) * static_cast<int64_t>(sizeof(values[0])));
    return here;
  };
  offsets.rows = place(asked.rows);
  offsets.slots = place(asked.slots);
  offsets.forbidden = place(asked.forbidden);
  offsets.biases = place(asked.biases);
  offsets.masks = place(asked.masks);
  return offsets;
}

Status DeviceSampling::upload(device::Stream& stream, const Offsets& offsets) {
  uploaded_.clear();
  HEDDLE_RETURN_IF_ERROR(upload_.begin(stream, offsets.end));
  const auto write = [&](const auto& values, int64_t at) {
    if (!values.empty()) {
      std::memcpy(upload_.host() + at, values.data(), values.size() * sizeof(values[0]));
    }
  };
  write(asked_.rows, offsets.rows);
  write(asked_.slots, offsets.slots);
  write(asked_.forbidden, offsets.forbidden);
  write(asked_.biases, offsets.biases);
  write(asked_.masks, offsets.masks);
  HEDDLE_RETURN_IF_ERROR(upload_.upload(stream, offsets.end));
  uploaded_ = asked_;
  return {};
}

Status DeviceSampling::enqueue(ops::Context& context, device::Stream& stream,
                               const MutableTensorView& logits, const SamplingMemory& memory,
                               bool tells_all) {
  if (std::ranges::none_of(asked_.rows, [](const auto& row) { return row.slot >= 0; })) return {};
  const int64_t R = logits.shape[0];
  HEDDLE_CHECK_EQ(std::ssize(asked_.rows), R);
  const Offsets offsets = Offsets::of(asked_);
  const std::optional<int64_t> shift = asked_.shift_from(uploaded_);
  if (!shift) HEDDLE_RETURN_IF_ERROR(upload(stream, offsets));

  const std::span<ops::SampledRow> sampled = results();
  for (ops::SampledRow& row : sampled) row.outcome = ops::SampleOutcome::kPending;
  tells_ = fetched_.empty();  // with fetched logits, copies follow the kernels
  num_told_ = 0;
  auto* top_logits = reinterpret_cast<ops::TopLogit*>(sampled.data() + R);
  HEDDLE_RETURN_IF_ERROR(ops::sample_rows(
      context,
      {.logits = logits,
       .rows = reinterpret_cast<const ops::SamplingRow*>(upload_.device() + offsets.rows),
       .position_shift = shift.value_or(0),
       .slots = reinterpret_cast<const ops::SamplingSlot*>(upload_.device() + offsets.slots),
       .counts = memory.counts,
       .forbidden = reinterpret_cast<const int32_t*>(upload_.device() + offsets.forbidden),
       .biases = reinterpret_cast<const ops::TokenBias*>(upload_.device() + offsets.biases),
       .path_tokens = memory.ids,
       .masks = reinterpret_cast<const uint32_t*>(upload_.device() + offsets.masks),
       .kind = asked_.kind(),
       .ended = memory.ended,
       .drawn = reinterpret_cast<int32_t*>(drawn_.data()),
       .sampled = sampled.data(),
       .is_watched = tells_,
       .tells_all = tells_all,
       .top_logits = wants_logprobs_ ? top_logits : nullptr,
       .workspace = workspace_.bytes()}));
  return fetch_logits(stream, logits);
}

Status DeviceSampling::fetch_logits(device::Stream& stream, const MutableTensorView& logits) {
  HEDDLE_ASSIGN_OR_RETURN(std::byte * to,
                          fetched_logits_.begin(bytes_of(DType::kF32, std::ssize(fetched_))));
  for (const Fetched& fetched : fetched_) {
    const std::byte* from = logits.as<std::byte>() +
                            bytes_of(DType::kF32, fetched.row * logits.row_stride + fetched.token);
    HEDDLE_RETURN_IF_ERROR(stream.copy(to, from, bytes_of(DType::kF32, 1)));
    to += bytes_of(DType::kF32, 1);
  }
  return {};
}

float DeviceSampling::fetched_logit(size_t index) const {
  return reinterpret_cast<const float*>(fetched_logits_.block(0))[index];
}

std::span<ops::SampledRow> DeviceSampling::results() {
  return {reinterpret_cast<ops::SampledRow*>(results_.block(0)), asked_.rows.size()};
}

bool DeviceSampling::told() {
  HEDDLE_CHECK(tells_);
  const std::span<ops::SampledRow> sampled = results();
  for (; num_told_ < sampled.size(); ++num_told_) {
    const std::atomic_ref outcome(sampled[num_told_].outcome);
    if (outcome.load(std::memory_order_acquire) == ops::SampleOutcome::kPending) return false;
  }
  return true;
}

const ops::SampledRow& DeviceSampling::result(int64_t row) const {
  HEDDLE_CHECK(draws(row));
  return reinterpret_cast<const ops::SampledRow*>(results_.block(0))[row];
}

void DeviceSampling::add_alternatives(int64_t row, const sampling::LogSoftmax& log_softmax,
                                      TokenLogprob& logprob) const {
  const auto* results = reinterpret_cast<const ops::SampledRow*>(results_.block(0));
  const auto* top = reinterpret_cast<const ops::TopLogit*>(results + asked_.rows.size()) +
                    row * ops::kMostTopLogits;
  for (int32_t i = 0; i < results[row].num_top_logits; ++i) {
    logprob.top.emplace_back(top[i].token, log_softmax(top[i].logit));
  }
  const auto [begin, num_listed] = row_logits_[static_cast<size_t>(row)];
  for (size_t i = begin; i < begin + num_listed; ++i) {
    logprob.listed.push_back(log_softmax(fetched_logit(i)));
  }
}

bool DeviceSampling::has_ended(int64_t row) const {
  return result(row).outcome == ops::SampleOutcome::kSkipped;
}

void DeviceSampling::take(int64_t row, request::SampledToken& sampled) const {
  const auto index = static_cast<size_t>(row);
  const ops::SampledRow& result = this->result(row);
  sampled.error = sampling::outcome_status(result.outcome, asked_.rows[index].position);
  sampled.token = sampled.error.ok() ? result.token : 0;
  if (asked_.slots[index].top_logprobs < 0 || !sampled.error.ok()) return;
  const sampling::LogSoftmax log_softmax(result.max, temperatures_[index], result.total);
  sampled.logprob.token = result.token;
  sampled.logprob.logprob = log_softmax(result.logit);
  add_alternatives(row, log_softmax, sampled.logprob);
}

void DeviceSampling::take_scored(size_t index, request::ScoredToken& scored) const {
  const int64_t row = scored_[index];
  const ops::SampledRow& result = this->result(row);
  scored.error =
      sampling::outcome_status(result.outcome, asked_.rows[static_cast<size_t>(row)].position);
  if (!scored.error.ok()) return;
  const sampling::LogSoftmax log_softmax(result.max, 1.0f, result.total);
  // The scored token's logit comes before those of listed tokens.
  const size_t own = row_logits_[static_cast<size_t>(row)].begin - 1;
  scored.logprob.token = fetched_[own].token;
  scored.logprob.logprob = log_softmax(fetched_logit(own));
  add_alternatives(row, log_softmax, scored.logprob);
}

}  // namespace heddle::runner

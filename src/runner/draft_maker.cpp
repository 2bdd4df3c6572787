// SPDX-License-Identifier: Apache-2.0
#include "runner/draft_maker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"

namespace heddle::runner {

namespace {

using request::PlannedSequence;
using request::SampledToken;

// kNoToken where they are not numbers.
TokenId most_likely(std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits);
  return std::isfinite(*best) ? static_cast<TokenId>(best - logits.begin()) : sampling::kNoToken;
}

}  // namespace

Result<std::unique_ptr<DraftMaker>> DraftMaker::create(std::unique_ptr<DraftPass> pass,
                                                       ForwardPass& target, int64_t max_pages) {
  std::unique_ptr<DraftMaker> maker(new DraftMaker(std::move(pass), target, max_pages));
  if (target.device().kind() != device::DeviceKind::kCpu) {
    HEDDLE_ASSIGN_OR_RETURN(maker->device_sampling_,
                            DeviceSampling::create(target.device(), maker->pass_->max_rows(),
                                                   maker->pass_->vocab_size()));
  }
  return maker;
}

DraftMaker::DraftMaker(std::unique_ptr<DraftPass> pass, ForwardPass& target, int64_t max_pages)
    : pass_(std::move(pass)), target_(&target), max_pages_(max_pages) {
  const auto max_rows = static_cast<size_t>(pass_->max_rows());
  greedy_.start.sampling.temperature = 0;
  streams_.resize(max_rows);
  page_table_.resize(max_rows * static_cast<size_t>(max_pages));
}

Status DraftMaker::make(const request::BatchPlan& plan, const request::BatchSlots& slots,
                        const ForwardBatch& batch, const Pools& pools,
                        request::StepOutput& output) {
  if (batch.empty() || !plan.computes_draft_slots) return {};
  ops::ForwardContext forward = batch.context(pools);
  lay_out_first(plan, slots, batch, output);
  forward.kv_layers = pools.draft_kv_layers();
  forward.state_layers = {};
  forward.snapshot_layers = {};
  forward.snapshots = {};
  forward.logit_rows = logit_rows_;
  HEDDLE_RETURN_IF_ERROR(pass_->enqueue_first(ids_, batch.positions(), forward));
  output.warms_up |= pass_->warmed_up();
  HEDDLE_RETURN_IF_ERROR(choose());
  while (!going_on_.empty()) {
    lay_out_next(forward.page_size);
    if (going_on_.empty()) break;
    HEDDLE_RETURN_IF_ERROR(pass_->enqueue_next(ids_, positions_,
                                               {.query_start = query_start_,
                                                .context_lens = context_lens_,
                                                .page_table = page_table_,
                                                .page_table_width = max_pages_,
                                                .page_size = forward.page_size,
                                                .logit_rows = logit_rows_,
                                                .kv_layers = forward.kv_layers},
                                               rows_));
    output.warms_up |= pass_->warmed_up();
    HEDDLE_RETURN_IF_ERROR(choose());
  }
  for (const Stream& stream : std::span(streams_).first(num_streams_)) {
    for (const TokenId draft : stream.drafts) {
      output.drafts.push_back({.sequence_id = stream.sequence_id, .token = draft});
    }
  }
  return {};
}

// The network's slots read the token after theirs.
void DraftMaker::lay_out_first(const request::BatchPlan& plan, const request::BatchSlots& slots,
                               const ForwardBatch& batch, const request::StepOutput& output) {
  ids_.assign(batch.ids().begin() + 1, batch.ids().end());
  ids_.push_back(0);
  logit_rows_.clear();
  going_on_.clear();
  num_streams_ = 0;
  request::SpanReader<const SampledToken> spans(output.tokens);
  int64_t end = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const PlannedSequence& sequence = plan.sequences[i];
    const auto drawn =
        sequence.sample ? spans.next(sequence.sequence_id) : std::span<const SampledToken>();
    if (batch.sequences()[i].part != BatchedSequence::Part::kComputed) continue;
    const int64_t last_new = end + sequence.num_new_tokens() - 1;
    end += sequence.num_rows();
    if (drawn.empty()) {
      ids_[static_cast<size_t>(last_new)] = sequence.next_token;
      continue;
    }
    const SampledToken& last = drawn.back();
    for (size_t j = 0; j < drawn.size(); ++j) {
      ids_[static_cast<size_t>(last_new) + j] = drawn[j].error.ok() ? drawn[j].token : 0;
    }
    // Behind them rows of rejected drafts may read anything.
    const int64_t row = last_new + std::ssize(drawn) - 1;
    if (row + 1 < end) ids_[static_cast<size_t>(end) - 1] = 0;
    const request::BatchSlot& slot = slots[sequence.batch_slot];
    if (sequence.wanted_drafts == 0 || !last.error.ok() || num_streams_ == streams_.size() ||
        std::ranges::binary_search(slot.ending_tokens, last.token)) {
      continue;
    }
    Stream& stream = streams_[num_streams_];
    stream.sequence_id = sequence.sequence_id;
    stream.slot = &slot;
    stream.row = static_cast<int32_t>(num_streams_);
    stream.position = sequence.context_tokens + sequence.num_new_tokens() + std::ssize(drawn) - 2;
    stream.wanted = sequence.wanted_drafts;
    stream.drafts.clear();
    going_on_.push_back(num_streams_++);
    logit_rows_.push_back(static_cast<int32_t>(row));
  }
}

// One slot for each stream that goes on and has a page for it.
void DraftMaker::lay_out_next(int32_t page_size) {
  ids_.clear();
  positions_.clear();
  logit_rows_.clear();
  rows_.clear();
  context_lens_.clear();
  query_start_.assign(1, 0);
  size_t count = 0;
  for (const size_t index : going_on_) {
    Stream& stream = streams_[index];
    const int64_t position = stream.position + 1;
    const std::vector<int32_t>& pages = stream.slot->pages.ids;
    if (position >= std::min(std::ssize(pages), max_pages_) * page_size) continue;
    std::copy_n(pages.begin(), position / page_size + 1,
                page_table_.begin() + static_cast<int64_t>(count) * max_pages_);
    rows_.push_back(stream.row);
    ids_.push_back(stream.drafts.back());
    positions_.push_back(static_cast<int32_t>(position));
    context_lens_.push_back(static_cast<int32_t>(position));
    logit_rows_.push_back(static_cast<int32_t>(count));
    stream.row = static_cast<int32_t>(count);
    stream.position = position;
    going_on_[count++] = index;
    query_start_.push_back(static_cast<int32_t>(count));
  }
  going_on_.resize(count);
}

// Adds the most likely token of each row to its stream; keeps those that want another one.
Status DraftMaker::choose() {
  if (going_on_.empty()) return {};
  const MutableTensorView logits = pass_->logits();
  const auto vocab_size = static_cast<size_t>(pass_->vocab_size());
  device::Stream& stream = target_->stream();
  if (device_sampling_) {
    device_sampling_->begin(std::ssize(going_on_));
    for (int64_t row = 0; row < std::ssize(going_on_); ++row) {
      device_sampling_->add(row, greedy_, /*position=*/0, {});
    }
    HEDDLE_RETURN_IF_ERROR(device_sampling_->enqueue(target_->context(), stream, logits));
  }
  HEDDLE_RETURN_IF_ERROR(stream.synchronize());
  size_t count = 0;
  for (size_t i = 0; i < going_on_.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    Stream& going_on = streams_[going_on_[i]];
    TokenId token = sampling::kNoToken;
    if (device_sampling_) {
      SampledToken sampled;
      device_sampling_->take(row, sampled);
      if (sampled.error.ok()) token = sampled.token;
    } else {
      token = most_likely({logits.row<float>(row), vocab_size});
    }
    if (token == sampling::kNoToken) continue;
    going_on.drafts.push_back(pass_->target_id(token));
    if (std::ssize(going_on.drafts) < going_on.wanted) going_on_[count++] = going_on_[i];
  }
  going_on_.resize(count);
  return {};
}

}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
#include "runner/step_executor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::runner {

namespace {

int64_t max_pages(int64_t context_length, const PoolSizes& sizes) {
  return (context_length + sizes.page_size - 1) / sizes.page_size;
}

// Index of the token that the sequence draws.
int64_t position_of_draw(const request::PlannedSequence& sequence) {
  return sequence.context_tokens + sequence.num_new_tokens();
}

}  // namespace

using request::PlannedSequence;
using Part = BatchedSequence::Part;

StepExecutor::StepExecutor(ForwardPass& pass, Pools pools, const PoolSizes& sizes,
                           int64_t context_length, LogitRows logit_rows,
                           std::unique_ptr<DraftPass> draft_pass)
    : pass_(&pass),
      pools_(std::move(pools)),
      sizes_(sizes),
      logit_rows_(logit_rows),
      max_pages_(max_pages(context_length, sizes)),
      slots_(sizes.max_step_sequences, max_pages_),
      batch_({.max_tokens = sizes.max_step_tokens,
              .max_sequences = sizes.max_step_sequences,
              .max_pages_per_sequence = max_pages_,
              .page_size = sizes.page_size,
              .window_pages = sizes.window_pages,
              .max_draft_rows = sizes.max_draft_rows,
              .first_draft_slot =
                  sizes.has_states() ? static_cast<int32_t>(sizes.num_state_slots + 1) : 0}),
      sampler_(pass_->config().vocab_size),
      draft_pass_(std::move(draft_pass)),
      drawn_tokens_(static_cast<size_t>(sizes.max_step_sequences), sampling::kNoToken) {}

Status StepExecutor::prepare() {
  if (draft_pass_ != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(draft_maker_,
                            DraftMaker::create(std::move(draft_pass_), *pass_, max_pages_));
  }
  if (pass_->device().kind() == device::DeviceKind::kCpu) return {};
  HEDDLE_ASSIGN_OR_RETURN(
      device_sampling_,
      DeviceSampling::create(pass_->device(), pass_->max_logit_rows(), pass_->config().vocab_size));
  return {};
}

Status StepExecutor::run(const request::BatchPlan& plan, request::StepOutput& output) {
  Status status = slots_.take(plan);
  if (status.ok()) status = check(plan);
  if (status.ok()) status = pass_->device().make_current();
  if (status.ok()) status = compute(plan, output);
  if (!status.ok()) std::ranges::fill(drawn_tokens_, sampling::kNoToken);
  return status;
}

Status StepExecutor::check(const request::BatchPlan& plan) const {
  for (const PlannedSequence& sequence : plan.sequences) {
    const auto wrong = [&](const std::string& what) {
      return invalid_argument(fmt::format("sequence {}: {}", sequence.sequence_id, what));
    };
    if (sequence.hidden_slot < 0 || sequence.hidden_slot > sizes_.max_snapshot_slot()) {
      return wrong(fmt::format("hidden slot {}; there are {}", sequence.hidden_slot,
                               sizes_.max_snapshot_slot()));
    }
    if (sizes_.keeps_hidden) continue;
    bool wants_hidden = sequence.hidden_slot != 0;
    for (const auto& snapshot : plan.snapshots_of(sequence)) wants_hidden |= snapshot.keep_hidden;
    if (wants_hidden) return wrong("this runner keeps no hidden vectors");
  }
  return {};
}

// With all rows wanted, somebody looks at the logits on the host.
bool StepExecutor::draws_on_device() const {
  return device_sampling_.has_value() && logit_rows_ == LogitRows::kSampled;
}

Status StepExecutor::enqueue_draws(const request::BatchPlan& plan) {
  const MutableTensorView logits = pass_->device_logits();
  device_sampling_->begin(logits.shape[0]);
  bool host_draws = false;
  size_t index = 0;
  for (const PlannedSequence& sequence : plan.sequences) {
    const BatchedSequence& batched = batch_.sequences()[index++];
    if (!sequence.sample || batched.part != Part::kComputed) continue;
    const request::BatchSlot& slot = slots_[sequence.batch_slot];
    if (DeviceSampling::draws_for(slot.start)) {
      for (int32_t i = 0; i <= sequence.drafts.count; ++i) {
        device_sampling_->add(batched.logit_row + i, slot, position_of_draw(sequence) + i,
                              plan.mask_of(sequence));
      }
    } else {
      host_draws = true;
    }
  }
  if (host_draws) HEDDLE_RETURN_IF_ERROR(pass_->fetch_logits());
  return device_sampling_->enqueue(pass_->context(), pass_->stream(), logits);
}

Status StepExecutor::compute(const request::BatchPlan& plan, request::StepOutput& output) {
  HEDDLE_RETURN_IF_ERROR(pools_.begin_step(pass_->stream(), pass_->context(), plan));
  HEDDLE_RETURN_IF_ERROR(batch_.build(plan, slots_, logit_rows_, drawn_tokens_));
  HEDDLE_RETURN_IF_ERROR(
      pools_.start_drafts(pass_->stream(), pass_->context(), batch_.draft_states()));
  if (!batch_.empty()) {
    if (draws_on_device()) {
      HEDDLE_RETURN_IF_ERROR(
          pass_->enqueue(batch_.ids(), batch_.positions(), batch_.context(pools_)));
    } else {
      HEDDLE_RETURN_IF_ERROR(pass_->run(batch_.ids(), batch_.positions(), batch_.context(pools_)));
    }
    HEDDLE_RETURN_IF_ERROR(keep_hidden());
    if (draws_on_device()) HEDDLE_RETURN_IF_ERROR(enqueue_draws(plan));
  }
  if (!batch_.hidden_slots().empty()) HEDDLE_RETURN_IF_ERROR(run_head());
  if (draws_on_device()) HEDDLE_RETURN_IF_ERROR(pass_->stream().synchronize());
  draw(plan, output);
  HEDDLE_RETURN_IF_ERROR(pools_.accept_drafts(pass_->stream(), pass_->context(), accepted_states_));
  if (draft_maker_ == nullptr) return {};
  return draft_maker_->make(plan, slots_, batch_, pools_, output);
}

Status StepExecutor::keep_hidden() {
  if (batch_.kept_hidden().empty()) return {};
  const TensorView rows = pass_->head_rows();
  const MutableTensorView kept = pools_.hidden();
  for (const KeptHidden& hidden : batch_.kept_hidden()) {
    HEDDLE_RETURN_IF_ERROR(copy_row(rows, hidden.logit_row, kept, hidden.slot));
  }
  return {};
}

Status StepExecutor::run_head() {
  const MutableTensorView kept = pools_.hidden();
  const MutableTensorView rows = pools_.hidden_scratch(std::ssize(batch_.hidden_slots()));
  int64_t row = 0;
  for (const int32_t slot : batch_.hidden_slots()) {
    HEDDLE_RETURN_IF_ERROR(copy_row(kept, slot, rows, row++));
  }
  return pass_->run_head(rows);
}

Status StepExecutor::copy_row(const TensorView& from, int64_t from_row, const MutableTensorView& to,
                              int64_t to_row) {
  HEDDLE_CHECK(from.dtype == to.dtype);
  return pass_->stream().copy(
      to.as<std::byte>() + bytes_of(to.dtype, to_row * to.row_stride),
      from.as<std::byte>() + bytes_of(from.dtype, from_row * from.row_stride),
      bytes_of(to.dtype, to.shape[1]));
}

void StepExecutor::draw(const request::BatchPlan& plan, request::StepOutput& output) {
  accepted_states_.clear();
  size_t index = 0;
  for (const PlannedSequence& sequence : plan.sequences) {
    const BatchedSequence& batched = batch_.sequences()[index++];
    if (batched.part == Part::kComputed) {
      slots_.computed(sequence, plan.new_tokens(sequence), batched.fed_token);
    }
    if (!sequence.sample) continue;
    if (batched.part == Part::kSkipped) {
      output.tokens.push_back({.sequence_id = sequence.sequence_id, .skipped = true});
      continue;
    }
    const int32_t accepted = draw_span(plan, sequence, batched, output);
    const request::SampledToken& last = output.tokens.back();
    drawn_tokens_[static_cast<size_t>(sequence.batch_slot)] =
        last.error.ok() ? last.token : sampling::kNoToken;
    if (batched.draft_slot == 0) continue;
    const bool all = accepted == sequence.drafts.count;
    accepted_states_.push_back(
        {.from = batched.draft_slot + (all ? 0 : 1 + accepted), .to = sequence.state_slot});
  }
}

// Returns how many drafts were accepted.
int32_t StepExecutor::draw_span(const request::BatchPlan& plan, const PlannedSequence& sequence,
                                const BatchedSequence& batched, request::StepOutput& output) {
  const auto vocab_size = static_cast<size_t>(pass_->config().vocab_size);
  const bool on_device = batched.part == Part::kComputed && draws_on_device();
  const std::vector<TokenId>& ending = slots_[sequence.batch_slot].ending_tokens;
  const int64_t first = position_of_draw(sequence);
  int32_t accepted = 0;
  const auto draw_next = [&] {
    request::SampledToken& sampled = output.tokens.emplace_back();
    sampled.sequence_id = sequence.sequence_id;
    const int32_t row = batched.logit_row + accepted;
    if (on_device && device_sampling_->draws(row)) {
      device_sampling_->take(row, sampled);
      return;
    }
    const MutableTensorView logits =
        batched.part == Part::kHidden ? pass_->head_logits() : pass_->logits();
    draw(sequence, first + accepted, plan.mask_of(sequence), {logits.row<float>(row), vocab_size},
         sampled);
  };
  draw_next();
  for (const TokenId draft : plan.drafts(sequence)) {
    const request::SampledToken& drawn = output.tokens.back();
    if (!drawn.error.ok() || drawn.token != draft ||
        std::ranges::binary_search(ending, drawn.token)) {
      break;
    }
    slots_.accepted(sequence, draft);
    ++accepted;
    draw_next();
  }
  return accepted;
}

void StepExecutor::draw(const PlannedSequence& sequence, int64_t position,
                        std::span<const uint32_t> mask, std::span<float> logits,
                        request::SampledToken& sampled) {
  const request::BatchSlot& slot = slots_[sequence.batch_slot];
  const Result<TokenId> token =
      sampler_.sample({.logits = logits,
                       .params = &slot.start.sampling,
                       .output_tokens = slot.output_tokens,
                       .forbidden_tokens = slot.forbidden_tokens(position),
                       .mask = mask,
                       .seed = slot.start.seed,
                       .position = position,
                       .choice_index = slot.start.choice_index,
                       .top_logprobs = slot.start.top_logprobs},
                      slot.start.return_logprobs ? &sampled.logprob : nullptr);
  sampled.token = token.ok() ? *token : 0;
  sampled.error = token.status();
}

}  // namespace heddle::runner

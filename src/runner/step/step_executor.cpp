// SPDX-License-Identifier: Apache-2.0
#include "runner/step/step_executor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::runner {

namespace {

ForwardBatch::Sizes batch_sizes(const PoolSizes& sizes, const request::StepLimits& limits,
                                int64_t max_pages) {
  return {
      .max_tokens = limits.max_tokens,
      .max_sequences = sizes.max_sequences,
      .max_pages_per_sequence = max_pages,
      .page_size = sizes.page_size,
      .windows = sizes.windows,
      .max_draft_rows = limits.max_draft_rows,
      .first_draft_slot = sizes.has_states() ? static_cast<int32_t>(sizes.num_state_slots + 1) : 0,
      .max_scored_rows = limits.max_scored_rows,
      .num_hidden_slots = sizes.keeps_hidden ? sizes.max_snapshot_slot() : 0};
}

// Error if a sequence wants more alternatives of a draw than a device can list.
Status check_starts(const request::BatchPlan& plan) {
  for (const request::SlotStart& start : plan.starts) {
    const int32_t most = std::max(start.top_logprobs, start.prompt_top_logprobs);
    if (most <= ops::kMostTopLogits) continue;
    return invalid_argument(fmt::format("sequence {}: {} alternatives, at most {} are listed",
                                        start.sequence_id, most, ops::kMostTopLogits));
  }
  return {};
}

}  // namespace

StepExecutor::StepExecutor(ForwardPass& pass, Pools pools, const PoolSizes& sizes,
                           const request::StepLimits& limits, int64_t context_length,
                           LogitRows logit_rows, StepDrafts drafts)
    : pass_(&pass),
      pools_(std::move(pools)),
      logit_rows_(logit_rows),
      slots_(sizes.max_sequences, max_pages(context_length, sizes.page_size)),
      batch_(batch_sizes(sizes, limits, max_pages(context_length, sizes.page_size))),
      draws_(pass, logit_rows, drafts.simulated_acceptance),
      tokens_(sizes.max_sequences),
      kept_drafts_(sizes.max_sequences),
      settlement_(sizes.page_size, sizes.num_page_tables()),
      drafting_(std::move(drafts.maker)) {}

StepExecutor::~StepExecutor() {
  // The device may still be making drafts, in memory of the members.
  (void)pass_->stream().synchronize();
}

Status StepExecutor::prepare() { return draws_.prepare(slots_.size()); }

Status StepExecutor::run(const request::BatchPlan& plan, request::StepOutput& output) {
  HEDDLE_RETURN_IF_ERROR(begin(plan));
  return finish(output);
}

bool StepExecutor::can_begin_behind(const request::BatchPlan& plan) const {
  if (num_running() != 1 || step(num_finished_).end != StepEnd::kOpen) return false;
  const StepNeeds needs = StepNeeds::of(plan);
  if (!needs.only_draws() || needs.feeds_beside_new) return false;
  if (drafting_ != nullptr && drafting_->reads_texts(plan)) {
    return plan.starts.empty() && needs.all_decode;
  }
  return std::ranges::none_of(plan.starts, [this](const request::SlotStart& start) {
    return tokens_.is_computing(start.batch_slot);
  });
}

Status StepExecutor::begin(const request::BatchPlan& plan) {
  HEDDLE_CHECK(num_running() == 0 || can_begin_behind(plan));
  RunningStep& next = step(num_begun_);
  next.begin(num_begun_, plan);
  Status status = slots_.take(plan);
  if (status.ok()) status = check_starts(plan);
  if (status.ok()) status = pass_->device().make_current();
  if (status.ok()) status = enqueue(next);
  if (status.ok()) {
    for (const StepSequence& sequence : next.sequences) tokens_.begin(sequence, num_begun_);
    ++num_begun_;
    return status;
  }
  lose_draws();
  // Some of the step's work may have overwritten drafts that are kept, so their tokens are read
  // now.
  (void)pass_->stream().synchronize();
  if (drafting_ != nullptr) drafting_->read_back(kept_drafts_);
  return status;
}

Status StepExecutor::finish(request::StepOutput& output) {
  HEDDLE_CHECK_LT(num_finished_, num_begun_);
  RunningStep& oldest = step(num_finished_);
  Status status = pass_->device().make_current();
  if (status.ok()) status = collect(oldest, output);
  tokens_.finish(num_finished_++);
  if (!status.ok()) lose_draws();
  return status;
}

// Called after an error: all earlier draws count as failed.
void StepExecutor::lose_draws() {
  tokens_.lose_all();
  if (draws_.device() != nullptr) draws_.device()->forget_walk();
}

Status StepExecutor::enqueue(RunningStep& step) {
  HEDDLE_RETURN_IF_ERROR(prepare_inputs(step));
  if (!batch_.empty()) HEDDLE_RETURN_IF_ERROR(run_pass(step));
  if (step.end == StepEnd::kDeviceSettles) return settle_on_device(step);
  if (!batch_.hidden_slots().empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const TensorView kept,
                            pools_.kept_hidden(pass_->stream(), batch_.hidden_slots()));
    HEDDLE_RETURN_IF_ERROR(pass_->run_head(kept, batch_.hidden_adapters()));
  }
  return step.end == StepEnd::kOpen ? draws_.device()->mark_drawn(step) : Status();
}

Status StepExecutor::prepare_inputs(RunningStep& step) {
  DeviceDraws* const device = draws_.device();
  const request::BatchPlan& plan = *step.plan;
  if (kept_drafts_.has_places() && device == nullptr) {
    HEDDLE_RETURN_IF_ERROR(pass_->stream().synchronize());
    drafting_->read_back(kept_drafts_);
  }
  HEDDLE_RETURN_IF_ERROR(batch_.build(plan, slots_, logit_rows_, &tokens_, &kept_drafts_));
  step.sequences.assign(batch_.sequences().begin(), batch_.sequences().end());
  step.end = end_of(step);
  HEDDLE_RETURN_IF_ERROR(pools_.begin_step(pass_->stream(), pass_->context(), plan.moves));
  HEDDLE_RETURN_IF_ERROR(
      pools_.start_drafts(pass_->stream(), pass_->context(), batch_.draft_states()));
  if (device == nullptr) return {};
  HEDDLE_RETURN_IF_ERROR(device->begin(plan));
  return device->lay_out(step, std::ssize(batch_.logit_rows()),
                         {.before = num_running() > 0 ? &this->step(num_finished_) : nullptr,
                          .kept = &kept_drafts_,
                          .drafting = drafting_.get(),
                          .simulated = draws_.simulated()});
}

StepEnd StepExecutor::end_of(const RunningStep& step) const {
  if (draws_.device() == nullptr || !batch_.hidden_slots().empty()) return StepEnd::kHostSettles;
  const request::BatchPlan& plan = *step.plan;
  const bool makes_drafts = drafting_ != nullptr && plan.computes_draft_slots;
  if (!makes_drafts) {
    return step.needs.most_drafts == 0 ? StepEnd::kOpen : StepEnd::kHostSettles;
  }
  const bool goes_on_ahead = num_running() == 0 && !batch_.empty() && !step.needs.has_trees &&
                             step.needs.most_drafts <= ops::WalkedDrafts::kMostSimulated &&
                             drafting_->can_begin_ahead(plan, step.needs);
  return goes_on_ahead ? StepEnd::kDeviceSettles : StepEnd::kHostSettles;
}

Status StepExecutor::run_pass(RunningStep& step) {
  DeviceDraws* const device = draws_.device();
  if (device == nullptr) {
    HEDDLE_RETURN_IF_ERROR(pass_->run(batch_.ids(), batch_.positions(), batch_.context(pools_),
                                      {.adapters = batch_.adapters()}));
  } else {
    HEDDLE_RETURN_IF_ERROR(
        pass_->enqueue(batch_.ids(), batch_.positions(), batch_.context(pools_), &device->feed()));
  }
  step.warms_up = pass_->warmed_up();
  if (!batch_.kept_hidden().empty()) {
    HEDDLE_RETURN_IF_ERROR(
        pools_.keep_hidden(pass_->stream(), pass_->head_rows(), batch_.kept_hidden()));
  }
  const bool tells_all = drafting_ != nullptr && drafting_->keeps_drafts();
  return device == nullptr ? Status() : device->enqueue(step, tells_all);
}

Status StepExecutor::settle_on_device(const RunningStep& step) {
  DeviceDraws& device = *draws_.device();
  HEDDLE_RETURN_IF_ERROR(device.mark_drawn(step));
  HEDDLE_RETURN_IF_ERROR(device.walk(step));
  HEDDLE_RETURN_IF_ERROR(pools_.accept_drafts(pass_->context(), device.walked().copies()));
  HEDDLE_RETURN_IF_ERROR(
      drafting_->begin_ahead(drafted(step, {}), device.drawn(step), device.walked().missing()));
  return drafting_->go_on(pools_);
}

Status StepExecutor::collect(RunningStep& step, request::StepOutput& output) {
  DeviceDraws* const device = draws_.device();
  if (device != nullptr) {
    HEDDLE_RETURN_IF_ERROR(step.end == StepEnd::kHostSettles ? pass_->stream().synchronize()
                                                             : device->wait(step));
  }
  output.warms_up = step.warms_up;
  if (drafting_ != nullptr) drafting_->read_back(kept_drafts_);
  if (device != nullptr) HEDDLE_RETURN_IF_ERROR(device->check_walk(step));
  Draws::Results results{.slots = slots_,
                         .kept = kept_drafts_,
                         .tokens = tokens_,
                         .settlement = settlement_,
                         .output = output};
  HEDDLE_RETURN_IF_ERROR(draws_.draw(step, results));
  if (step.end == StepEnd::kHostSettles) HEDDLE_RETURN_IF_ERROR(settle(step, output));
  if (drafting_ == nullptr) return {};
  return drafting_->finish(drafted(step, output.tokens), kept_drafts_, output);
}

// Moves the states, keys and values of accepted drafts, and computes the draft network's rows and
// drafts.
Status StepExecutor::settle(const RunningStep& step, const request::StepOutput& output) {
  HEDDLE_RETURN_IF_ERROR(
      pools_.accept_drafts(pass_->stream(), pass_->context(), settlement_.states()));
  if (drafting_ != nullptr) {
    // The draft network's rows for this step are laid out, and then moved, like the model's.
    HEDDLE_RETURN_IF_ERROR(drafting_->begin(drafted(step, output.tokens)));
  }
  HEDDLE_RETURN_IF_ERROR(pools_.move_rows(pass_->stream(), pass_->context(), settlement_.rows()));
  return drafting_ != nullptr ? drafting_->go_on(pools_) : Status();
}

DraftedStep StepExecutor::drafted(const RunningStep& step,
                                  std::span<const request::SampledToken> tokens) const {
  return {.plan = *step.plan,
          .slots = slots_,
          .sequences = step.sequences,
          .batch = batch_,
          .pools = pools_,
          .paths = step.paths,
          .tokens = tokens};
}

}  // namespace heddle::runner

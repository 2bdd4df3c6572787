// SPDX-License-Identifier: Apache-2.0
#include "engine/step_pipeline.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::engine {

using request::BatchPlan;
using request::PlannedSequence;
using request::SampledToken;
using request::StepOutput;

namespace {

Status check_made_drafts(const BatchPlan& plan, const StepOutput& output, int64_t vocab_size) {
  request::SpanReader<const request::MadeDraft> spans(output.drafts);
  for (const PlannedSequence& planned : plan.sequences) {
    const auto made = spans.next(planned.sequence_id);
    if (std::ssize(made) > planned.wanted_drafts) {
      return internal_error(fmt::format("the runner made {} drafts for sequence {}, {} are wanted",
                                        made.size(), planned.sequence_id, planned.wanted_drafts));
    }
    for (const request::MadeDraft& draft : made) {
      const int64_t index = &draft - made.data();
      if (draft.parent < -1 || draft.parent >= index) {
        return internal_error(
            fmt::format("the runner made draft {} of sequence {} behind draft {}, which does not "
                        "come before it",
                        index, planned.sequence_id, draft.parent));
      }
      if (draft.token == request::kKeptDraft && planned.may_keep_drafts) continue;
      if (draft.token < 0 || draft.token >= vocab_size) {
        return internal_error(fmt::format(
            "the runner made a draft of token {}, the vocabulary has {}", draft.token, vocab_size));
      }
    }
  }
  if (!spans.at_end()) return internal_error("the runner made drafts that were not planned");
  return {};
}

Status check_scored(const BatchPlan& plan, const StepOutput& output) {
  request::SpanReader<const request::ScoredToken> spans(output.scored);
  for (const PlannedSequence& planned : plan.sequences) {
    const auto scored = spans.next(planned.sequence_id);
    if (std::ssize(scored) == planned.scored.count) continue;
    return internal_error(fmt::format("the runner scored {} tokens of sequence {}, {} are wanted",
                                      scored.size(), planned.sequence_id, planned.scored.count));
  }
  if (!spans.at_end()) return internal_error("the runner scored tokens that were not planned");
  return {};
}

Status check_output(const BatchPlan& plan, const StepOutput& output, int64_t vocab_size) {
  request::SpanReader<const SampledToken> spans(output.tokens);
  for (const PlannedSequence& planned : plan.sequences) {
    if (!planned.sample) continue;
    const std::span<const SampledToken> drawn = spans.next(planned.sequence_id);
    const int64_t most = int64_t{planned.drafts.count} + 1;
    if (drawn.empty() || std::ssize(drawn) > most) {
      return internal_error(fmt::format("the runner drew {} tokens for sequence {}, 1 to {} fit",
                                        drawn.size(), planned.sequence_id, most));
    }
    for (const SampledToken& sampled : drawn) {
      const bool ends_span = sampled.skipped || !sampled.error.ok();
      if (ends_span && (&sampled != &drawn.back() || (sampled.skipped && drawn.size() > 1))) {
        return internal_error(fmt::format("the runner went on after a draw of sequence {} failed",
                                          planned.sequence_id));
      }
      if (!ends_span && (sampled.token < 0 || sampled.token >= vocab_size)) {
        return internal_error(fmt::format("the runner drew token {} of a vocabulary of {}",
                                          sampled.token, vocab_size));
      }
    }
  }
  if (!spans.at_end()) return internal_error("the runner drew tokens that were not planned");
  HEDDLE_RETURN_IF_ERROR(check_scored(plan, output));
  return check_made_drafts(plan, output, vocab_size);
}

// Counts the accepted drafts: the tokens of each sequence beyond its first.
int64_t count_accepted_drafts(const BatchPlan& plan, const StepOutput& output) {
  return std::ssize(output.tokens) -
         std::ranges::count_if(plan.sequences, [](const auto& planned) { return planned.sample; });
}

// Abandons a step on destruction unless it was completed, so that exceptions are covered too.
class AbandonUnlessDone {
 public:
  AbandonUnlessDone(scheduler::Scheduler& scheduler, const BatchPlan& plan)
      : scheduler_(scheduler), plan_(plan) {}

  ~AbandonUnlessDone() {
    if (!done_) scheduler_.abandon(plan_);
  }

  AbandonUnlessDone(const AbandonUnlessDone&) = delete;
  AbandonUnlessDone& operator=(const AbandonUnlessDone&) = delete;

  void set_done() { done_ = true; }

 private:
  scheduler::Scheduler& scheduler_;
  const BatchPlan& plan_;
  bool done_ = false;
};

}  // namespace

StepPipeline::StepPipeline(std::unique_ptr<runner::Runner> runner, scheduler::Scheduler& scheduler,
                           Activity& activity, const Clock& clock, const PipelineOptions& options)
    : runner_(std::move(runner)),
      scheduler_(scheduler),
      activity_(activity),
      clock_(clock),
      options_(options),
      max_in_flight_(options.overlap ? runner::kMaxStepsInFlight : 1) {
  HEDDLE_CHECK(runner_ != nullptr);
}

const BatchPlan* StepPipeline::plan() {
  HEDDLE_CHECK(!full() && !planned_);
  if (!empty() && scheduler_.awaits_draws()) return nullptr;
  BatchPlan& plan = slots_[next_].plan;
  const double since = clock_.now_seconds();
  scheduler_.plan(plan);
  plan_seconds_ = clock_.now_seconds() - since;
  planned_ = !plan.empty();
  return planned_ ? &plan : nullptr;
}

Status StepPipeline::launch(const StepFacts& facts) {
  HEDDLE_CHECK(planned_);
  Slot& slot = slots_[next_];
  slot.facts = facts;
  slot.facts.plan_seconds = plan_seconds_;
  slot.facts.launched_seconds = clock_.now_seconds();
  show_in_flight(num_in_flight_ + 1);
  const bool is_alone = empty();
  if (!is_alone) scheduler_.catch_up();
  if (Status status = runner_->submit(slot.plan); !status.ok()) {
    abandon_all();
    return status;
  }
  planned_ = false;
  next_ = (next_ + 1) % slots_.size();
  ++num_in_flight_;
  if (is_alone) scheduler_.catch_up();
  return {};
}

Result<FinishedStep> StepPipeline::wait() {
  HEDDLE_CHECK(!empty());
  Slot& slot = oldest();
  --num_in_flight_;  // even if a later line fails, this step is no longer in flight
  AbandonUnlessDone guard(scheduler_, slot.plan);
  HEDDLE_ASSIGN_OR_RETURN(StepOutput output, runner_->wait());
  const double now = clock_.now_seconds();
  HEDDLE_RETURN_IF_ERROR(check_output(slot.plan, output, options_.vocab_size));
  guard.set_done();
  scheduler_.complete(slot.plan, output);
  ++num_finished_;
  slot.facts.seconds = now - std::max(slot.facts.launched_seconds, last_end_);
  slot.facts.end_seconds = now;
  slot.facts.accepted_drafts = count_accepted_drafts(slot.plan, output);
  last_end_ = now;
  activity_.count_step(slot.facts);
  show_in_flight(num_in_flight_);
  return FinishedStep{.plan = &slot.plan, .output = std::move(output), .facts = slot.facts};
}

Status StepPipeline::use_weights(const runner::NewWeights& weights) {
  HEDDLE_CHECK(empty());
  return runner_->use_weights(weights);
}

void StepPipeline::abandon_all() {
  while (!empty()) {
    const BatchPlan& plan = oldest().plan;
    --num_in_flight_;
    const AbandonUnlessDone guard(scheduler_, plan);
    (void)runner_->wait();
  }
  if (std::exchange(planned_, false)) scheduler_.abandon(slots_[next_].plan);
  show_in_flight(num_in_flight_);
}

void StepPipeline::show_in_flight(size_t count) {
  std::array<StepFacts, runner::kMaxStepsInFlight> steps;
  for (size_t i = 0; i < count; ++i) {
    steps[i] = slots_[(next_ + slots_.size() - num_in_flight_ + i) % slots_.size()].facts;
  }
  activity_.show_steps(std::span(steps).first(count), last_end_);
}

}  // namespace heddle::engine

// SPDX-License-Identifier: Apache-2.0
#include "runner/step/device_draws.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace heddle::runner {

namespace {

// Polls until the event is reached: a sleeping thread is woken late, on virtual machines by as much
// as a step takes.
Status wait_for(const device::Event& event) {
  for (;;) {
    HEDDLE_ASSIGN_OR_RETURN(const bool reached, event.reached());
    if (reached) return {};
    std::this_thread::yield();
  }
}

// Polls until the draws have signalled. Checks the stream only now and then, in case the device is
// lost.
Status wait_for(DeviceSampling& sampling, device::Stream& stream) {
  constexpr int kLooks = 4096;
  for (;;) {
    for (int i = 0; i < kLooks; ++i) {
      if (sampling.told()) return {};
      std::this_thread::yield();
    }
    HEDDLE_ASSIGN_OR_RETURN(const bool idle, stream.is_idle());
    if (idle && !sampling.told()) return internal_error("the device did not tell what it drew");
  }
}

}  // namespace

DeviceDraws::DeviceDraws(ForwardPass& pass, OutputCounts counts)
    : pass_(&pass),
      counts_(std::move(counts)),
      feed_(pass.device(), kMaxStepsInFlight),
      walk_(pass.device(), kMaxStepsInFlight) {}

Result<std::unique_ptr<DeviceDraws>> DeviceDraws::create(ForwardPass& pass,
                                                         int64_t num_batch_slots) {
  device::Device& device = pass.device();
  const int64_t vocab_size = pass.config().vocab_size;
  HEDDLE_ASSIGN_OR_RETURN(OutputCounts counts, OutputCounts::create(device, num_batch_slots,
                                                                    vocab_size, kMaxStepsInFlight));
  std::unique_ptr<DeviceDraws> draws(new DeviceDraws(pass, std::move(counts)));
  for (int i = 0; i < kMaxStepsInFlight; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(DeviceSampling sampling,
                            DeviceSampling::create(device, pass.max_logit_rows(), vocab_size));
    HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<device::Event> done, device.create_event());
    draws->running_.push_back({.sampling = std::move(sampling), .done = std::move(done)});
  }
  return draws;
}

Status DeviceDraws::lay_out(const RunningStep& step, int64_t num_logit_rows,
                            const Sources& sources) {
  const request::BatchPlan& plan = *step.plan;
  DeviceSampling& sampling = of(step).sampling;
  sampling.begin(num_logit_rows);
  begin_feed(num_logit_rows, sources);
  walk_.begin();
  for (const StepSequence& sequence : step.sequences) {
    if (!sequence.is_computed()) continue;
    add_fed_rows(plan, sequence, *sources.kept);
    counts_.add(*sequence.planned, *sequence.slot, sequence.first_row);
    add_scored(sampling, plan, sequence);
    if (!sequence.planned->sample) continue;
    HEDDLE_RETURN_IF_ERROR(add_draws(sampling, plan, sequence, *sources.kept));
    if (step.end == StepEnd::kDeviceSettles) add_walk(sequence, sources.simulated);
  }
  return {};
}

// A step has either a step before it in flight or drafts to verify, never both, so one source of
// tokens suffices.
void DeviceDraws::begin_feed(int64_t num_logit_rows, const Sources& sources) {
  if (sources.before != nullptr) {
    feed_.begin(num_logit_rows, drawn(*sources.before));
  } else if (sources.drafting != nullptr && sources.kept->has_places()) {
    feed_.begin(num_logit_rows, sources.drafting->kept_on_device(),
                sources.drafting->target_ids_on_device());
  } else {
    feed_.begin(num_logit_rows, nullptr);
  }
}

void DeviceDraws::add_fed_rows(const request::BatchPlan& plan, const StepSequence& sequence,
                               const KeptDrafts& kept) {
  if (sequence.fed_from >= 0) {
    feed_.add({.row = sequence.first_row,
               .sequence = sequence.batch_index,
               .logit_row = sequence.logit_row,
               .from = sequence.fed_from},
              sequence.slot->ending_tokens);
  }
  int32_t row = sequence.last_new_row() + 1;
  for (const int32_t place : kept.places(plan, *sequence.planned)) {
    feed_.add({.row = row++, .sequence = ops::FedRow::kIdAlone, .from = place}, {});
  }
}

void DeviceDraws::add_scored(DeviceSampling& sampling, const request::BatchPlan& plan,
                             const StepSequence& sequence) {
  for (int32_t i = 0; i < sequence.planned->scored.count; ++i) {
    sampling.add_scored(sequence.scored_row + i, plan.scored_token(*sequence.planned, i),
                        sequence.scored_position(i), sequence.slot->start.prompt_top_logprobs,
                        sequence.slot->logprob_tokens);
  }
}

Status DeviceDraws::add_draws(DeviceSampling& sampling, const request::BatchPlan& plan,
                              const StepSequence& sequence, const KeptDrafts& kept) {
  const request::PlannedSequence& planned = *sequence.planned;
  if (sequence.has_tree) {
    HEDDLE_RETURN_IF_ERROR(
        tree_.assign(kept.tokens(plan, planned), plan.parents_of_drafts(planned)));
  }
  RowOutput output{.counts_row = planned.batch_slot, .path_begin = sequence.last_new_row() + 1};
  for (int32_t i = 0; i <= planned.drafts.count; ++i) {
    int32_t depth = i;
    if (sequence.has_tree) {
      depth = tree_.depths()[static_cast<size_t>(i)];
      // Without the bit of node 0, which is no draft.
      output.path = tree_.masks()[static_cast<size_t>(i)] >> 1;
    } else if (i > 0) {
      output.path = output.path << 1 | 1;
    }
    sampling.add(sequence.logit_row + i, *sequence.slot, sequence.draw_position() + depth,
                 plan.mask_of(planned, i), output);
  }
  return {};
}

void DeviceDraws::add_walk(const StepSequence& sequence,
                           const speculative::SimulatedAcceptance* simulated) {
  const request::PlannedSequence& planned = *sequence.planned;
  ops::WalkedDrafts walked{.first_row = sequence.last_new_row(),
                           .logit_row = sequence.logit_row,
                           .num_drafts = planned.drafts.count,
                           .state_slot = planned.state_slot,
                           .draft_slot = sequence.draft_slot};
  for (int32_t i = 0; simulated != nullptr && i < planned.drafts.count; ++i) {
    const bool holds = simulated->holds(planned.sequence_id, sequence.draw_position(), i);
    walked.simulated |= uint64_t{1} << i;
    walked.holding |= uint64_t{holds} << i;
  }
  walk_.add(walked, sequence.slot->ending_tokens);
}

Status DeviceDraws::enqueue(const RunningStep& step, bool tells_all) {
  const int32_t* ids = pass_->device_ids();
  HEDDLE_RETURN_IF_ERROR(counts_.enqueue(pass_->context(), pass_->stream(), ids));
  return of(step).sampling.enqueue(pass_->context(), pass_->stream(), pass_->device_logits(),
                                   {.ended = feed_.ended(), .ids = ids, .counts = counts_.counts()},
                                   tells_all);
}

Status DeviceDraws::mark_drawn(const RunningStep& step) {
  const Running& running = of(step);
  return running.sampling.tells() ? Status() : pass_->stream().record(*running.done);
}

Status DeviceDraws::wait(const RunningStep& step) {
  Running& running = of(step);
  return running.sampling.tells() ? wait_for(running.sampling, pass_->stream())
                                  : wait_for(*running.done);
}

Status DeviceDraws::walk(const RunningStep& step) {
  return walk_.enqueue(pass_->context(), pass_->stream(), pass_->device_ids(), drawn(step));
}

Status DeviceDraws::check_walk(const RunningStep& later) {
  const bool is_last = later.end != StepEnd::kDeviceSettles;
  const bool agrees =
      expected_missing_.empty() || std::ranges::equal(walk_.told(is_last), expected_missing_);
  expected_missing_.clear();
  return agrees ? Status()
                : internal_error("the device and the host found different drafts to hold");
}

}  // namespace heddle::runner

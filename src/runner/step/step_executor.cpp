// SPDX-License-Identifier: Apache-2.0
#include "runner/step/step_executor.h"

#include <algorithm>
#include <thread>
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

// Index of the token behind a scored row.
int64_t position_of_scored(const request::PlannedSequence& sequence, int32_t i) {
  return sequence.context_tokens + sequence.scored.begin + i + 1;
}

// Asks again and again: a thread that sleeps is woken late, on virtual machines by as much as a
// step takes.
Status wait_for(const device::Event& event) {
  for (;;) {
    HEDDLE_ASSIGN_OR_RETURN(const bool reached, event.reached());
    if (reached) return {};
    std::this_thread::yield();
  }
}

// Likewise, looking seldom at the stream, whose device may be lost.
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

using request::PlannedSequence;
using Part = BatchedSequence::Part;

StepExecutor::StepExecutor(ForwardPass& pass, Pools pools, const PoolSizes& sizes,
                           int64_t context_length, LogitRows logit_rows, StepDrafts drafts)
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
      rows_in_flight_(static_cast<size_t>(sizes.max_step_sequences), -1),
      drafts_(std::move(drafts)),
      kept_drafts_(sizes.max_step_sequences),
      drawn_tokens_(static_cast<size_t>(sizes.max_step_sequences), sampling::kNoToken) {
  if (drafts_.simulated_acceptance > 0) simulated_.emplace(drafts_.simulated_acceptance);
}

StepExecutor::~StepExecutor() {
  // The device may still make drafts, in memory of the members.
  (void)pass_->stream().synchronize();
}

Status StepExecutor::prepare() {
  if (drafts_.pass != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(
        draft_maker_,
        DraftMaker::create(std::move(drafts_.pass), *pass_, max_pages_,
                           {.topk = sizes_.draft_topk,
                            .num_steps = sizes_.draft_steps,
                            .num_drafts = static_cast<int32_t>(sizes_.max_made_drafts)}));
  }
  if (drafts_.small_model != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(standalone_maker_,
                            StandaloneMaker::create(std::move(drafts_.small_model), sizes_,
                                                    pass_->config().vocab_size, max_pages_));
  }
  device::Device& device = pass_->device();
  if (device.kind() == device::DeviceKind::kCpu) return {};
  feed_.emplace(device, kMaxStepsInFlight);
  walk_.emplace(device, kMaxStepsInFlight);
  HEDDLE_ASSIGN_OR_RETURN(output_counts_,
                          OutputCounts::create(device, sizes_.max_step_sequences,
                                               pass_->config().vocab_size, kMaxStepsInFlight));
  for (Step& step : steps_) {
    HEDDLE_ASSIGN_OR_RETURN(step.sampling, DeviceSampling::create(device, pass_->max_logit_rows(),
                                                                  pass_->config().vocab_size));
    HEDDLE_ASSIGN_OR_RETURN(step.done, device.create_event());
  }
  return {};
}

Status StepExecutor::run(const request::BatchPlan& plan, request::StepOutput& output) {
  HEDDLE_RETURN_IF_ERROR(begin(plan));
  return finish(output);
}

bool StepExecutor::can_begin_behind(const request::BatchPlan& plan) const {
  if (num_begun_ - num_finished_ != 1 || !oldest().open) return false;
  const bool draws_alone = std::ranges::all_of(plan.sequences, [](const PlannedSequence& sequence) {
    return sequence.hidden_slot == 0 && sequence.drafts.empty() && sequence.wanted_drafts == 0 &&
           (!sequence.feeds_drawn_token || sequence.num_rows() == 1);
  });
  if (!draws_alone) return false;
  // Networks that draft read the prompts, and look up who has started, when the step before is
  // finished.
  const bool is_read =
      standalone_maker_ != nullptr || (draft_maker_ != nullptr && plan.computes_draft_slots);
  if (!is_read) {
    return std::ranges::all_of(plan.starts, [this](const request::SlotStart& start) {
      return !is_looked_up(start.batch_slot);
    });
  }
  return plan.starts.empty() &&
         std::ranges::all_of(plan.sequences, [](const PlannedSequence& sequence) {
           return sequence.sample && sequence.num_rows() == 1;
         });
}

// Whether the step in flight has a sequence in the batch slot that is not known to be left out.
bool StepExecutor::is_looked_up(int32_t batch_slot) const {
  const Step& step = oldest();
  size_t index = 0;
  for (const PlannedSequence& sequence : step.plan->sequences) {
    const BatchedSequence& batched = step.sequences[index++];
    if (sequence.batch_slot == batch_slot && !is_left_out(sequence, batched)) return true;
  }
  return false;
}

// Of the step in flight, whose fed tokens the host knows: a sequence that ended with its own was
// left out on the device.
bool StepExecutor::is_left_out(const PlannedSequence& sequence,
                               const BatchedSequence& batched) const {
  if (batched.part == Part::kSkipped) return true;
  if (batched.fed_from < 0) return false;
  const TokenId fed = drawn_tokens_[static_cast<size_t>(sequence.batch_slot)];
  return fed == sampling::kNoToken ||
         std::ranges::binary_search(slots_[sequence.batch_slot].ending_tokens, fed);
}

Status StepExecutor::begin(const request::BatchPlan& plan) {
  HEDDLE_CHECK(num_begun_ == num_finished_ || can_begin_behind(plan));
  Step& step = steps_[static_cast<size_t>(num_begun_) % steps_.size()];
  list_rows_in_flight();  // of sequences whose slots others may take
  Status status = slots_.take(plan);
  if (status.ok()) status = check(plan);
  if (status.ok()) status = pass_->device().make_current();
  if (status.ok()) status = enqueue(plan, step);
  if (status.ok()) {
    ++num_begun_;
  } else {
    std::ranges::fill(drawn_tokens_, sampling::kNoToken);
    has_unchecked_walk_ = false;
    // Some of its work may have taken the place of drafts that are kept.
    (void)pass_->stream().synchronize();
    if (draft_maker_ != nullptr) draft_maker_->learn(kept_drafts_);
  }
  return status;
}

Status StepExecutor::finish(request::StepOutput& output) {
  HEDDLE_CHECK_LT(num_finished_, num_begun_);
  Step& step = oldest();
  Status status = pass_->device().make_current();
  if (status.ok()) status = collect(step, output);
  ++num_finished_;
  if (!status.ok()) std::ranges::fill(drawn_tokens_, sampling::kNoToken);
  return status;
}

Status StepExecutor::check(const request::BatchPlan& plan) const {
  for (const request::SlotStart& start : plan.starts) {
    const int32_t most = std::max(start.top_logprobs, start.prompt_top_logprobs);
    if (most <= ops::kMostTopLogits) continue;
    return invalid_argument(fmt::format("sequence {}: {} alternatives, at most {} are listed",
                                        start.sequence_id, most, ops::kMostTopLogits));
  }
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
  const int64_t scored = plan.num_scored_rows();
  if (scored > sizes_.max_scored_rows) {
    return invalid_argument(
        fmt::format("a step that scores {} tokens; at most {}", scored, sizes_.max_scored_rows));
  }
  return {};
}

// With all rows wanted, the host reads the logits.
bool StepExecutor::draws_on_device() const {
  return feed_.has_value() && logit_rows_ == LogitRows::kSampled;
}

// The rows that the step in flight draws from, of sequences that still run as far as the host
// knows.
void StepExecutor::list_rows_in_flight() {
  std::ranges::fill(rows_in_flight_, -1);
  if (num_begun_ == num_finished_) return;
  const Step& step = oldest();
  size_t index = 0;
  for (const PlannedSequence& sequence : step.plan->sequences) {
    const BatchedSequence& batched = step.sequences[index++];
    if (!sequence.sample || batched.part != Part::kComputed) continue;
    if (is_left_out(sequence, batched)) continue;
    rows_in_flight_[static_cast<size_t>(sequence.batch_slot)] = batched.logit_row;
  }
}

// A step that verifies drafts begins behind no other: it feeds on these alone.
void StepExecutor::add_fed_rows(const request::BatchPlan& plan) {
  const bool behind = num_begun_ > num_finished_;
  const bool has_drafts = !behind && draft_maker_ != nullptr && kept_drafts_.has_places();
  const int64_t num_logit_rows = std::ssize(batch_.logit_rows());
  if (has_drafts) {
    feed_->begin(num_logit_rows, draft_maker_->drawn(), draft_maker_->pass().device_target_ids());
  } else {
    feed_->begin(num_logit_rows, behind ? oldest().sampling->drawn() : nullptr);
  }
  size_t index = 0;
  int32_t b = 0;  // in the batch: skipped ones are not
  for (const PlannedSequence& sequence : plan.sequences) {
    const BatchedSequence& batched = batch_.sequences()[index++];
    if (batched.part != Part::kComputed) continue;
    if (batched.fed_from >= 0) {
      feed_->add({.row = batch_.row_of(b),
                  .sequence = b,
                  .logit_row = batched.logit_row,
                  .from = batched.fed_from},
                 slots_[sequence.batch_slot].ending_tokens);
    }
    int32_t row = batch_.row_of(b) + static_cast<int32_t>(sequence.num_new_tokens());
    for (const int32_t place : kept_drafts_.places(plan, sequence)) {
      feed_->add({.row = row++, .sequence = ops::FedRow::kIdAlone, .from = place}, {});
    }
    ++b;
  }
}

Status StepExecutor::enqueue_draws(const request::BatchPlan& plan, Step& step) {
  const MutableTensorView logits = pass_->device_logits();
  step.sampling->begin(logits.shape[0]);
  size_t index = 0;
  int32_t b = 0;  // in the batch: skipped ones are not
  for (const PlannedSequence& sequence : plan.sequences) {
    const BatchedSequence& batched = batch_.sequences()[index++];
    const request::BatchSlot& slot = slots_[sequence.batch_slot];
    int32_t first_row = 0;
    if (batched.part == Part::kComputed) {
      first_row = batch_.row_of(b++);
      output_counts_->add(sequence, slot, first_row);
    }
    for (int32_t i = 0; i < sequence.scored.count; ++i) {
      step.sampling->add_scored(batched.scored_row + i, plan.scored_token(sequence, i),
                                position_of_scored(sequence, i), slot.start.prompt_top_logprobs,
                                slot.logprob_tokens);
    }
    if (!sequence.sample || batched.part != Part::kComputed) continue;
    if (batched.has_tree) {
      HEDDLE_RETURN_IF_ERROR(
          tree_.assign(kept_drafts_.tokens(plan, sequence), plan.parents_of_drafts(sequence)));
    }
    RowOutput output{.counts_row = sequence.batch_slot,
                     .path_begin = first_row + static_cast<int32_t>(sequence.num_new_tokens())};
    for (int32_t i = 0; i <= sequence.drafts.count; ++i) {
      int32_t depth = i;
      if (batched.has_tree) {
        depth = tree_.depths()[static_cast<size_t>(i)];
        output.path = tree_.masks()[static_cast<size_t>(i)] >> 1;  // node 0 is no draft
      } else if (i > 0) {
        output.path = output.path << 1 | 1;
      }
      step.sampling->add(batched.logit_row + i, slot, position_of_draw(sequence) + depth,
                         plan.mask_of(sequence, i), output);
    }
  }
  const int32_t* ids = pass_->device_ids();
  HEDDLE_RETURN_IF_ERROR(output_counts_->enqueue(pass_->context(), pass_->stream(), ids));
  // Drafts made before, and which of them held, are in the host's memory then, too.
  const bool tells_all = draft_maker_ != nullptr;
  return step.sampling->enqueue(
      pass_->context(), pass_->stream(), logits,
      {.ended = feed_->ended(), .ids = ids, .counts = output_counts_->counts()}, tells_all);
}

Status StepExecutor::enqueue(const request::BatchPlan& plan, Step& step) {
  step.plan = &plan;
  step.warms_up = false;
  HEDDLE_RETURN_IF_ERROR(pools_.begin_step(pass_->stream(), pass_->context(), plan));
  if (output_counts_) HEDDLE_RETURN_IF_ERROR(output_counts_->begin(pass_->stream(), plan));
  if (kept_drafts_.has_places() && !draws_on_device()) {
    HEDDLE_RETURN_IF_ERROR(pass_->stream().synchronize());
    draft_maker_->learn(kept_drafts_);
  }
  HEDDLE_RETURN_IF_ERROR(
      batch_.build(plan, slots_, logit_rows_, drawn_tokens_, rows_in_flight_, &kept_drafts_));
  step.sequences.assign(batch_.sequences().begin(), batch_.sequences().end());
  HEDDLE_RETURN_IF_ERROR(
      pools_.start_drafts(pass_->stream(), pass_->context(), batch_.draft_states()));
  const bool has_maker = draft_maker_ != nullptr || standalone_maker_ != nullptr;
  const bool makes_drafts = has_maker && plan.computes_draft_slots;
  step.open = draws_on_device() && !makes_drafts && batch_.hidden_slots().empty() &&
              std::ranges::all_of(plan.sequences,
                                  [](const auto& sequence) { return sequence.drafts.empty(); });
  if (!batch_.empty()) {
    if (draws_on_device()) {
      add_fed_rows(plan);
      HEDDLE_RETURN_IF_ERROR(
          pass_->enqueue(batch_.ids(), batch_.positions(), batch_.context(pools_), &*feed_));
    } else {
      HEDDLE_RETURN_IF_ERROR(pass_->run(batch_.ids(), batch_.positions(), batch_.context(pools_)));
    }
    step.warms_up = pass_->warmed_up();
    HEDDLE_RETURN_IF_ERROR(keep_hidden());
    if (draws_on_device()) HEDDLE_RETURN_IF_ERROR(enqueue_draws(plan, step));
  } else if (step.sampling) {
    step.sampling->begin(0);
  }
  step.is_settled = makes_drafts && can_settle_ahead(plan);
  if (step.is_settled) return settle_ahead(plan, step);
  if (!batch_.hidden_slots().empty()) HEDDLE_RETURN_IF_ERROR(run_head());
  return step.open ? mark_drawn(step) : Status();
}

// Before what the host need not wait for.
Status StepExecutor::mark_drawn(Step& step) {
  return step.sampling->tells() ? Status() : pass_->stream().record(*step.done);
}

Status StepExecutor::wait_for_draws(Step& step) {
  return step.sampling->tells() ? wait_for(*step.sampling, pass_->stream()) : wait_for(*step.done);
}

Status StepExecutor::collect(Step& step, request::StepOutput& output) {
  if (step.open || step.is_settled) {
    HEDDLE_RETURN_IF_ERROR(wait_for_draws(step));
  } else if (draws_on_device()) {
    HEDDLE_RETURN_IF_ERROR(pass_->stream().synchronize());
  }
  output.warms_up = step.warms_up;
  if (draft_maker_ != nullptr) draft_maker_->learn(kept_drafts_);
  HEDDLE_RETURN_IF_ERROR(check_walk(step));
  HEDDLE_RETURN_IF_ERROR(draw(step, output));
  if (!step.open && !step.is_settled) HEDDLE_RETURN_IF_ERROR(settle_drafts(step, output));
  if (draft_maker_ != nullptr && !step.open) {
    draft_maker_->tell(*step.plan, kept_drafts_, output);
  }
  if (standalone_maker_ == nullptr) return {};
  return standalone_maker_->make(*step.plan, slots_, step.sequences, pools_, output);
}

// States, keys and values of drafts that held go to their places; the network that drafts follows.
Status StepExecutor::settle_drafts(const Step& step, request::StepOutput& output) {
  HEDDLE_RETURN_IF_ERROR(pools_.accept_drafts(pass_->stream(), pass_->context(), accepted_states_));
  if (draft_maker_ != nullptr) {
    // Its slots of the step's rows lie as the model's do, and move with them.
    HEDDLE_RETURN_IF_ERROR(
        draft_maker_->begin(*step.plan, slots_, batch_, accepted_, pools_, output));
  }
  HEDDLE_RETURN_IF_ERROR(
      pools_.move_rows(pass_->stream(), pass_->context(), moved_rows_, moved_window_rows_));
  return draft_maker_ != nullptr ? draft_maker_->make(pools_) : Status();
}

// The device went on from as many drafts as it found to hold, in the step before this one. The host
// found the same: else texts would be wrong from then on.
Status StepExecutor::check_walk(const Step& step) {
  if (!std::exchange(has_unchecked_walk_, false)) return {};
  if (std::ranges::equal(walk_->told(/*is_last=*/!step.is_settled), missing_)) return {};
  return internal_error("the device and the host found different drafts to hold");
}

// The device draws for all, drafts are chains, and nobody waits for new ones.
bool StepExecutor::can_settle_ahead(const request::BatchPlan& plan) const {
  return draws_on_device() && draft_maker_ != nullptr && draft_maker_->can_begin_ahead(plan) &&
         num_begun_ == num_finished_ && !batch_.empty() && batch_.hidden_slots().empty() &&
         std::ranges::all_of(plan.sequences, [](const PlannedSequence& sequence) {
           return sequence.draft_parents.empty() &&
                  sequence.drafts.count <= ops::WalkedDrafts::kMostSimulated;
         });
}

Status StepExecutor::settle_ahead(const request::BatchPlan& plan, Step& step) {
  device::Stream& stream = pass_->stream();
  HEDDLE_RETURN_IF_ERROR(mark_drawn(step));
  walk_->begin();
  size_t index = 0;
  int32_t b = 0;
  for (const PlannedSequence& sequence : plan.sequences) {
    const BatchedSequence& batched = batch_.sequences()[index++];
    if (batched.part != Part::kComputed) continue;
    const int32_t last_new =
        batch_.row_of(b++) + static_cast<int32_t>(sequence.num_new_tokens()) - 1;
    if (!sequence.sample) continue;
    ops::WalkedDrafts walked{.first_row = last_new,
                             .logit_row = batched.logit_row,
                             .num_drafts = sequence.drafts.count,
                             .state_slot = sequence.state_slot,
                             .draft_slot = batched.draft_slot};
    for (int32_t i = 0; simulated_ && i < sequence.drafts.count; ++i) {
      const bool holds = simulated_->holds(sequence.sequence_id, position_of_draw(sequence), i);
      walked.simulated |= uint64_t{1} << i;
      walked.holding |= uint64_t{holds} << i;
    }
    walk_->add(walked, slots_[sequence.batch_slot].ending_tokens);
  }
  int32_t* drawn = step.sampling->drawn();
  HEDDLE_RETURN_IF_ERROR(walk_->enqueue(pass_->context(), stream, pass_->device_ids(), drawn));
  HEDDLE_RETURN_IF_ERROR(pools_.accept_drafts(pass_->context(), walk_->copies()));
  HEDDLE_RETURN_IF_ERROR(
      draft_maker_->begin_ahead(plan, slots_, batch_, pools_, drawn, walk_->missing()));
  return draft_maker_->make(pools_);
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

Status StepExecutor::draw(const Step& step, request::StepOutput& output) {
  accepted_states_.clear();
  moved_rows_.clear();
  moved_window_rows_.clear();
  accepted_.clear();
  missing_.clear();
  size_t index = 0;
  for (const PlannedSequence& sequence : step.plan->sequences) {
    const BatchedSequence& batched = step.sequences[index++];
    const bool was_fed_ahead = batched.fed_from >= 0;
    const bool has_ended = batched.part == Part::kSkipped ||
                           (was_fed_ahead && step.sampling->has_ended(batched.logit_row));
    if (sequence.sample && has_ended) {
      output.tokens.push_back({.sequence_id = sequence.sequence_id, .skipped = true});
      continue;
    }
    if (batched.part == Part::kComputed) {
      const TokenId drawn_before = drawn_tokens_[static_cast<size_t>(sequence.batch_slot)];
      slots_.computed(sequence, step.plan->new_tokens(sequence),
                      was_fed_ahead ? drawn_before : batched.fed_token);
    }
    if (!sequence.scored.empty()) score(step, sequence, batched, output);
    if (!sequence.sample) continue;
    HEDDLE_RETURN_IF_ERROR(draw_span(step, sequence, batched, output));
    kept_drafts_.drop(sequence.batch_slot);
    const request::SampledToken& last = output.tokens.back();
    drawn_tokens_[static_cast<size_t>(sequence.batch_slot)] =
        last.error.ok() ? last.token : sampling::kNoToken;
    if (step.is_settled) {
      const auto held = static_cast<int32_t>(accepted_.last().size()) - 1;
      missing_.push_back(sequence.drafts.count - held);
    } else {
      accept(step, sequence, batched);
    }
  }
  has_unchecked_walk_ = step.is_settled;
  return {};
}

void StepExecutor::score(const Step& step, const PlannedSequence& sequence,
                         const BatchedSequence& batched, request::StepOutput& output) {
  const auto vocab_size = static_cast<size_t>(pass_->config().vocab_size);
  const size_t first = output.scored.size();  // of the step's scored tokens, as they were added
  for (int32_t i = 0; i < sequence.scored.count; ++i) {
    request::ScoredToken& scored = output.scored.emplace_back();
    scored.sequence_id = sequence.sequence_id;
    if (draws_on_device()) {
      step.sampling->take_scored(first + static_cast<size_t>(i), scored);
      continue;
    }
    const float* const logits = pass_->logits().row<float>(batched.scored_row + i);
    const request::BatchSlot& slot = slots_[sequence.batch_slot];
    scored.error = sampler_.score({logits, vocab_size}, step.plan->scored_token(sequence, i),
                                  position_of_scored(sequence, i), slot.start.prompt_top_logprobs,
                                  slot.logprob_tokens, scored.logprob);
  }
}

// The sequence goes on from the last node of its path: its state, and those of snapshots on the
// way; its keys and values, where they do not lie in their places yet.
void StepExecutor::accept(const Step& step, const PlannedSequence& sequence,
                          const BatchedSequence& batched) {
  const std::span<const int32_t> path = accepted_.last();
  if (batched.draft_slot != 0) {
    accepted_states_.push_back({.from = batched.state_after(path.back(), sequence.drafts.count),
                                .to = sequence.state_slot});
  }
  if (!batched.has_tree) return;
  const int64_t first = position_of_draw(sequence) - 1;  // place of the node that all follow
  if (batched.draft_slot != 0) {
    for (const request::StateSnapshot& snapshot : step.plan->snapshots_of(sequence)) {
      const int64_t depth = snapshot.tokens - 1 - first;
      if (depth < 1 || depth >= std::ssize(path)) continue;
      const int32_t node = path[static_cast<size_t>(depth)];
      accepted_states_.push_back(
          {.from = batched.state_after(node, sequence.drafts.count), .to = snapshot.slot});
    }
  }
  const request::BatchSlot& slot = slots_[sequence.batch_slot];
  const auto move = [&](const request::PageList& pages, std::vector<ops::IdCopy>& moved) {
    const auto row_at = [&](int64_t place) {
      const auto page = static_cast<size_t>(place / sizes_.page_size);
      return static_cast<int32_t>(pages.ids[page] * int64_t{sizes_.page_size} +
                                  place % sizes_.page_size);
    };
    for (int64_t depth = 1; depth < std::ssize(path); ++depth) {
      const int64_t node = path[static_cast<size_t>(depth)];
      if (node == depth) continue;
      moved.push_back({.from = row_at(first + node), .to = row_at(first + depth)});
    }
  };
  move(slot.pages, moved_rows_);
  if (sizes_.has_window_pages()) move(slot.window_pages, moved_window_rows_);
}

// Draws down the drafts as long as they hold.
Status StepExecutor::draw_span(const Step& step, const PlannedSequence& sequence,
                               const BatchedSequence& batched, request::StepOutput& output) {
  const auto vocab_size = static_cast<size_t>(pass_->config().vocab_size);
  const bool on_device = batched.part == Part::kComputed && draws_on_device();
  const std::vector<TokenId>& ending = slots_[sequence.batch_slot].ending_tokens;
  const int64_t first = position_of_draw(sequence);
  HEDDLE_RETURN_IF_ERROR(tree_.assign(kept_drafts_.tokens(*step.plan, sequence),
                                      step.plan->parents_of_drafts(sequence)));
  const auto draw_at = [&](int32_t node) -> std::optional<TokenId> {
    if (node > 0) slots_.accepted(sequence, tree_.token(node));
    request::SampledToken& sampled = output.tokens.emplace_back();
    sampled.sequence_id = sequence.sequence_id;
    const int32_t row = batched.logit_row + node;
    if (on_device) {
      step.sampling->take(row, sampled);
    } else {
      const MutableTensorView logits =
          batched.part == Part::kHidden ? pass_->head_logits() : pass_->logits();
      draw(sequence, first + tree_.depths()[static_cast<size_t>(node)],
           step.plan->mask_of(sequence, node), {logits.row<float>(row), vocab_size}, sampled);
    }
    if (simulated_) simulate(sequence, node, sampled);
    const bool ends = !sampled.error.ok() || std::ranges::binary_search(ending, sampled.token);
    return ends ? std::optional<TokenId>() : sampled.token;
  };
  tree_.walk(draw_at, accepted_.add(sequence.sequence_id));
  return {};
}

// Makes the token behind a node the draft there, or another one.
void StepExecutor::simulate(const PlannedSequence& sequence, int32_t node,
                            request::SampledToken& sampled) const {
  const int32_t next = tree_.next_token()[static_cast<size_t>(node)];
  if (next == speculative::DraftTree::kNone) return;
  const TokenId draft = tree_.token(next);
  if (simulated_->holds(sequence.sequence_id, position_of_draw(sequence), node)) {
    sampled.token = draft;
    sampled.error = {};
  } else if (sampled.token == draft) {
    sampled.token = draft == 0 ? 1 : draft - 1;
  }
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
                       .top_logprobs = slot.start.top_logprobs,
                       .logprob_tokens = slot.logprob_tokens},
                      slot.start.return_logprobs ? &sampled.logprob : nullptr);
  sampled.token = token.ok() ? *token : 0;
  sampled.error = token.status();
}

}  // namespace heddle::runner

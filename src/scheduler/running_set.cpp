// SPDX-License-Identifier: Apache-2.0
#include "scheduler/running_set.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace heddle::scheduler {

using request::BatchPlan;
using request::PlannedSequence;
using request::SampledToken;
using request::Sequence;
using request::SequenceStatus;
using request::SlotStart;

namespace {

// The parameters of a sequence whose first `context_tokens` tokens later steps do not compute.
SlotStart start_of(const Sequence& sequence, int64_t context_tokens, bool sends_context,
                   BatchPlan& plan) {
  const Request& asked = sequence.request;
  SlotStart start{.sequence_id = sequence.id,
                  .batch_slot = sequence.batch_slot,
                  .choice_index = asked.choice_index,
                  .adapter_slot = asked.adapter == nullptr ? -1 : asked.adapter->slot,
                  .seed = sequence.seed,
                  .sampling = asked.sampling,
                  .return_logprobs = asked.return_logprobs,
                  .top_logprobs = asked.top_logprobs,
                  .prompt_top_logprobs = asked.prompt_logprobs ? asked.prompt_logprobs->top : 0,
                  .num_prompt_tokens = sequence.num_prompt_tokens,
                  .min_length = sequence.num_prompt_tokens + asked.stop.min_new_tokens,
                  .max_length = sequence.num_prompt_tokens + asked.stop.max_new_tokens,
                  // With a constraint the masks say which tokens may end the answer.
                  .ending_tokens = plan.add_tokens(sequence.constraint == nullptr
                                                       ? std::span(sequence.ending_tokens)
                                                       : std::span<const TokenId>()),
                  .logprob_tokens = plan.add_tokens(asked.logprob_tokens),
                  .output_tokens = {},
                  .context = {}};
  const int64_t num_output = context_tokens - sequence.num_prompt_tokens;
  HEDDLE_CHECK_LE(num_output, sequence.num_output_tokens());
  if (num_output > 0 && request::penalises(asked.sampling)) {
    start.output_tokens =
        plan.add_tokens(sequence.output_tokens().first(static_cast<size_t>(num_output)));
  }
  if (sends_context) {
    start.context =
        plan.add_tokens(std::span(sequence.tokens).first(static_cast<size_t>(context_tokens)));
  }
  return start;
}

}  // namespace

RunningSet::RunningSet(int32_t num_batch_slots, const request::StepLimits& limits,
                       cache::PrefixCache& cache)
    : limits_(limits), cache_(cache), slots_(static_cast<size_t>(num_batch_slots)) {
  running_.reserve(slots_.size());
  for (int32_t slot = num_batch_slots - 1; slot >= 0; --slot) {
    slots_[static_cast<size_t>(slot)].batch_slot = slot;
    free_slots_.push_back(slot);
  }
}

RunningSequence& RunningSet::in_slot(int32_t batch_slot) {
  RunningSequence& running = slots_[static_cast<size_t>(batch_slot)];
  HEDDLE_CHECK(running.sequence != nullptr);
  return running;
}

bool RunningSet::any_can_decode() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const RunningSequence* running) { return running->can_decode(); });
}

bool RunningSet::any_can_prefill() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const RunningSequence* running) { return running->can_prefill(); });
}

bool RunningSet::any_leaving() const {
  return std::any_of(running_.begin(), running_.end(), [](const RunningSequence* running) {
    return running->leaving != Leaving::kNo;
  });
}

StepWork RunningSet::decode_work() const {
  StepWork work;
  for (const RunningSequence* running : running_) {
    if (running->can_decode()) work.add(1, running->num_planned);
  }
  return work;
}

RunningSequence* RunningSet::start(Sequence& sequence, const cache::PrefixMatch& match,
                                   int64_t headroom, bool without_cache) {
  const int32_t slot = free_slots_.back();
  RunningSequence& running = slots_[static_cast<size_t>(slot)];
  // Reserves memory for the longest length, so that no later step allocates.
  const int64_t max_stored = sequence.max_stored_tokens();
  const int64_t page_size = cache_.options().pools.page_size;
  sequence.tokens.reserve(static_cast<size_t>(max_stored + 1));
  sequence.pages.reserve(static_cast<size_t>((max_stored + page_size - 1) / page_size));
  if (!cache_.admit(sequence, match, headroom, running.cached)) return nullptr;
  running.cached.publishes_only_at_end = without_cache;
  sequence.status = SequenceStatus::kRunning;
  sequence.batch_slot = slot;
  running.sequence = &sequence;
  running.num_planned = sequence.num_computed;
  running.steps_in_flight = 0;
  running.draws_in_flight = 0;
  running.drafts_in_flight = 0;
  running.forced_in_flight = false;
  running.most_forced = RunningSequence::kMostForced;
  running.made_in_flight = false;
  running.made_drafts.clear();
  running.acceptance_trend = {};
  running.sent = false;
  free_slots_.pop_back();
  running_.push_back(&running);
  return &running;
}

bool RunningSet::grow(const RunningSequence& running, int64_t num_drafts) {
  return cache_.grow(*running.sequence, running.num_planned + 1 + num_drafts);
}

bool RunningSet::grow_windows(RunningSequence& running, int64_t num_drafts) {
  return cache_.grow_windows(running.cached, running.num_planned + 1 + num_drafts);
}

bool RunningSet::shrink_windows() {
  bool freed = false;
  for (RunningSequence* running : running_) {
    freed |= cache_.shrink(*running->sequence, running->cached);
  }
  return freed;
}

// Adds the sequence to the plan, with the data about its batch slot that the runner lacks.
PlannedSequence& RunningSet::add_planned(RunningSequence& running, bool sample, BatchPlan& plan) {
  const Sequence& sequence = *running.sequence;
  if (!std::exchange(running.sent, true)) {
    plan.starts.push_back(
        start_of(sequence, running.num_planned, limits_.drafter_reads_texts, plan));
    running.sent_pages.fill(0);
  }
  PlannedSequence& planned = plan.sequences.emplace_back();
  planned.sequence_id = sequence.id;
  planned.batch_slot = running.batch_slot;
  planned.context_tokens = running.num_planned;
  planned.state_slot = sequence.state_slot;
  planned.sample = sample;
  planned.takes_long_rope = sequence.takes_long_rope;
  return planned;
}

// Adds masks for the draws after the new tokens and after each draft that the grammar allows; these
// drafts become allowed_. Left out are drafts that end the answer, because nothing would be drawn
// after them, and drafts that follow a draft that is left out.
void RunningSet::add_masks(Sequence& sequence, const PlannedDrafts& drafts,
                           PlannedSequence& planned, BatchPlan& plan) {
  ConstraintState& form = *sequence.constraint;
  const int64_t vocab_size = sequence.request.constraint->vocab_size();
  allowed_.clear();
  planned.masks.begin = static_cast<int32_t>(plan.mask_words.size());
  const std::span<uint32_t> first = plan.add_mask(vocab_size);
  const int64_t num_output = sequence.num_output_tokens();
  Status status = sequence.fill_mask(num_output, first);
  auto tokens = drafts.tokens;
  if (!status.ok()) {
    // No token is allowed then: the draw fails, and the request ends with this reason.
    std::ranges::fill(first, 0u);
    if (sequence.constraint_status.ok()) sequence.constraint_status = std::move(status);
    tokens = {};
  }
  constexpr int32_t kLeftOut = -2;
  kept_.clear();          // index in allowed_ of each draft
  allowed_path_.clear();  // indices in allowed_ of the drafts that `form` has accepted
  const auto go_back_to = [&](int32_t parent) {
    const auto place = std::ranges::find(allowed_path_, parent);
    if (place != allowed_path_.end() || parent == -1) {
      const auto depth = parent == -1 ? 0 : place - allowed_path_.begin() + 1;
      form.roll_back(std::ssize(allowed_path_) - depth);
      allowed_path_.resize(static_cast<size_t>(depth));
      return;
    }
    form.roll_back(std::ssize(allowed_path_));
    allowed_path_.clear();
    for (int32_t up = parent; up != -1; up = allowed_.parents[static_cast<size_t>(up)]) {
      allowed_path_.push_back(up);
    }
    std::ranges::reverse(allowed_path_);
    for (const int32_t draft : allowed_path_) {
      HEDDLE_CHECK(form.accept_text(allowed_.tokens[static_cast<size_t>(draft)]));
    }
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t follows =
        drafts.parents.empty() ? static_cast<int32_t>(i) - 1 : drafts.parents[i];
    const int32_t parent = follows == -1 ? -1 : kept_[static_cast<size_t>(follows)];
    kept_.push_back(kLeftOut);
    if (parent == kLeftOut) continue;
    go_back_to(parent);
    const int64_t num_before = num_output + std::ssize(allowed_path_);
    if (sequence.ends_form(num_before, tokens[i]) || !form.accept_text(tokens[i])) continue;
    if (form.is_over() || !sequence.fill_mask(num_before + 1, plan.add_mask(vocab_size)).ok()) {
      if (!form.is_over()) {
        plan.mask_words.resize(plan.mask_words.size() -
                               static_cast<size_t>((vocab_size + 31) / 32));
      }
      form.roll_back(1);
      continue;
    }
    kept_.back() = static_cast<int32_t>(allowed_.tokens.size());
    allowed_path_.push_back(kept_.back());
    allowed_.tokens.push_back(tokens[i]);
    allowed_.parents.push_back(parent);
  }
  form.roll_back(std::ssize(allowed_path_));
  planned.masks.count = static_cast<int32_t>(plan.mask_words.size()) - planned.masks.begin;
  if (speculative::is_chain(allowed_.parents)) allowed_.parents.clear();
}

// Adds the pages that the runner does not know yet. Called after the cache has allocated the step's
// pages.
void RunningSet::send_pages(RunningSequence& running, BatchPlan& plan) {
  const auto send = [&](uint32_t table, const std::vector<int32_t>& pages, int64_t first_there) {
    int64_t& sent = running.sent_pages[table];
    const int64_t first = std::max(sent, first_there);
    if (first >= std::ssize(pages)) return;
    plan.page_updates.push_back(
        {.batch_slot = running.batch_slot,
         .table = table,
         .first = static_cast<int32_t>(first),
         .pages = plan.add_pages(std::span(pages).subspan(static_cast<size_t>(first)))});
    sent = std::ssize(pages);
  };
  send(0, running.sequence->pages, 0);
  for (uint32_t i = 0; i < running.cached.windows.size(); ++i) {
    send(1 + i, running.cached.windows[i].pages, running.cached.windows[i].first);
  }
}

// A constrained sequence's grammar decides which drafts are verified, so the runner must report
// them.
void RunningSet::want_drafts(RunningSequence& running, int64_t count, PlannedSequence& next) {
  next.wanted_drafts = static_cast<int32_t>(count);
  next.may_keep_drafts = count > 0 && running.sequence->constraint == nullptr;
  running.made_in_flight = count > 0;
}

int64_t RunningSet::plan_decode(RunningSequence& running, const PlannedDrafts& proposed,
                                int64_t num_wanted, BatchPlan& plan) {
  PlannedSequence& next = add_planned(running, true, plan);
  PlannedDrafts drafts = proposed;
  if (running.sequence->constraint != nullptr) {
    add_masks(*running.sequence, proposed, next, plan);
    drafts = {allowed_.tokens, allowed_.parents, proposed.forced};
  }
  want_drafts(running, num_wanted, next);
  plan.computes_draft_slots |= running.made_in_flight;
  next.feeds_drawn_token = running.draws_in_flight > 0;
  if (!next.feeds_drawn_token) {
    next.new_tokens = {.begin = static_cast<int32_t>(plan.tokens.size()), .count = 1};
    plan.tokens.push_back(running.sequence->tokens.back());
  }
  if (!drafts.tokens.empty()) {
    HEDDLE_CHECK(!next.feeds_drawn_token);
    next.drafts = plan.add_tokens(drafts.tokens);
    if (!drafts.parents.empty()) {
      next.draft_parents = plan.add_draft_parents(drafts.parents.first(drafts.tokens.size()));
    }
    next.drafts_are_forced = drafts.forced;
    running.drafts_in_flight = std::ssize(drafts.tokens);
    running.forced_in_flight = drafts.forced;
  }
  const int64_t end = running.num_planned + next.num_rows();
  cache_.plan_decode(*running.sequence, running.cached, end, next, plan);
  send_pages(running, plan);
  running.num_planned = end;
  ++running.steps_in_flight;
  ++running.draws_in_flight;
  return std::ssize(drafts.tokens);
}

void RunningSet::plan_prefill(RunningSequence& running, int64_t num_new_tokens, BatchPlan& plan) {
  const Sequence& sequence = *running.sequence;
  const int64_t end = running.num_planned + num_new_tokens;
  const bool last = end == sequence.num_tokens();
  const bool draws = last && sequence.wants_tokens();
  // The draft network needs slots after the prompt.
  const int64_t most = sequence.max_stored_tokens() - end - 1;
  const int64_t num_wanted = std::min(draws ? wanted_behind_prompts_ : 0, most);
  const int64_t slots = std::min(limits_.draft_slots(num_wanted), most);
  const bool makes = num_wanted > 0 && cache_.grow(*running.sequence, end + slots);
  PlannedSequence& next = add_planned(running, draws, plan);
  if (draws && sequence.constraint != nullptr) {
    add_masks(*running.sequence, {}, next, plan);
  }
  next.new_tokens = plan.add_tokens(
      std::span<const TokenId>(sequence.tokens)
          .subspan(static_cast<size_t>(running.num_planned), static_cast<size_t>(num_new_tokens)));
  if (!last) next.next_token = sequence.tokens[static_cast<size_t>(end)];
  const auto [first_scored, num_scored] = sequence.scored_rows(running.num_planned, end);
  if (num_scored > 0) {
    next.scored = {.begin = static_cast<int32_t>(first_scored - running.num_planned),
                   .count = static_cast<int32_t>(num_scored)};
  }
  cache_.plan_prefill(sequence, running.cached, end, next, plan);
  plan.computes_draft_slots |= network_follows_prompts_;
  if (makes && next.hidden_slot == 0) want_drafts(running, num_wanted, next);
  send_pages(running, plan);
  running.num_planned = end;
  ++running.steps_in_flight;
  if (next.sample) ++running.draws_in_flight;
}

int64_t RunningSet::complete(const PlannedSequence& planned, std::span<const SampledToken> drawn,
                             std::span<const request::MadeDraft> made) {
  RunningSequence& running = in_slot(planned.batch_slot);
  Sequence& sequence = *running.sequence;
  HEDDLE_CHECK_EQ(sequence.id, planned.sequence_id);
  --running.steps_in_flight;
  if (planned.sample) --running.draws_in_flight;
  running.drafts_in_flight -= planned.drafts.count;
  if (!planned.drafts.empty()) running.forced_in_flight = false;
  if (planned.sample) running.made_drafts.clear();
  if (planned.wanted_drafts > 0) running.made_in_flight = false;
  const int64_t count = planned.num_new_tokens();
  if (!drawn.empty() && drawn.front().skipped) {
    running.num_planned -= count;  // the sequence had ended before the step: nothing was computed
    return 0;
  }
  HEDDLE_CHECK_EQ(sequence.num_computed, planned.context_tokens);
  const int64_t accepted = drawn.empty() ? 0 : std::ssize(drawn) - 1;
  HEDDLE_CHECK_LE(accepted, int64_t{planned.drafts.count});
  if (!planned.feeds_drawn_token) prefilled_tokens_ += count;
  // A released sequence gets no more tokens, with two exceptions: accepted drafts have been
  // computed, and a step in flight that feeds the last token computes that token anyway.
  int64_t appended = 0;
  for (const SampledToken& token : drawn) {
    const bool computed = appended < accepted || running.draws_in_flight > 0;
    if (!token.error.ok() || (running.is_released() && !computed)) break;
    sequence.append(token.token);
    ++appended;
  }
  if (appended > 0 && appended == std::ssize(drawn)) {
    for (const request::MadeDraft& draft : made) {
      running.made_drafts.tokens.push_back(draft.token);
      running.made_drafts.parents.push_back(draft.parent);
    }
  }
  sequence.num_computed += count + accepted;
  sequence.next_scored += planned.scored.count;
  running.num_planned -= planned.drafts.count - accepted;
  if (planned.sample && sequence.num_computed > sequence.num_prompt_tokens) {
    DraftReport& report = sequence.draft_report;
    ++report.verify_steps;
    if (planned.drafts_are_forced) {
      report.forced_tokens += accepted;
    } else {
      report.accepted_tokens += accepted;
      report.rejected_tokens += planned.drafts.count - accepted;
    }
  }
  if (planned.drafts_are_forced) {
    running.most_forced = accepted > 0 ? RunningSequence::kMostForced : running.most_forced / 2;
  }
  cache_.confirm(sequence, running.cached);
  if (!planned.drafts.empty()) cache_.drop_pending(running.cached);
  return appended;
}

void RunningSet::abandon(const PlannedSequence& planned) {
  RunningSequence& running = in_slot(planned.batch_slot);
  --running.steps_in_flight;
  if (planned.sample) --running.draws_in_flight;
  running.drafts_in_flight -= planned.drafts.count;
  if (!planned.drafts.empty()) running.forced_in_flight = false;
  if (planned.wanted_drafts > 0) running.made_in_flight = false;
  running.made_drafts.clear();
  running.num_planned -= planned.num_rows();
  running.sent = false;
}

void RunningSet::remove(RunningSequence& running) {
  HEDDLE_CHECK(running.is_removable());
  Sequence& sequence = *running.sequence;
  const bool keeps_end = running.leaving != Leaving::kAborted;
  cache_.release(sequence, running.cached,
                 keeps_end ? cache::PrefixCache::Keep::kEnd : cache::PrefixCache::Keep::kPublished);
  sequence.batch_slot = -1;
  running_.erase(std::find(running_.begin(), running_.end(), &running));
  free_slots_.push_back(running.batch_slot);
  running.sequence = nullptr;
  running.leaving = Leaving::kNo;
  running.returns_without_cache = false;
}

std::vector<cache::AdmittedSequence> RunningSet::admitted() const {
  std::vector<cache::AdmittedSequence> admitted;
  for (const RunningSequence* running : running_) {
    admitted.push_back({.sequence = running->sequence, .cached = &running->cached});
  }
  return admitted;
}

void RunningSet::check_invariants(int64_t num_steps_in_flight) const {
  HEDDLE_CHECK_EQ(running_.size() + free_slots_.size(), slots_.size());
  for (const RunningSequence* running : running_) {
    HEDDLE_CHECK(running->sequence != nullptr);
    const Sequence& sequence = *running->sequence;
    HEDDLE_CHECK_EQ(sequence.batch_slot, running->batch_slot);
    HEDDLE_CHECK(sequence.status ==
                 (running->is_released() ? SequenceStatus::kEnding : SequenceStatus::kRunning));
    HEDDLE_CHECK(!running->is_removable());
    HEDDLE_CHECK_GE(running->steps_in_flight, 0);
    HEDDLE_CHECK_LE(int64_t{running->steps_in_flight}, num_steps_in_flight);
    HEDDLE_CHECK_LE(sequence.num_computed, running->num_planned);
    HEDDLE_CHECK_LE(running->num_planned,
                    sequence.num_tokens() + running->draws_in_flight + running->drafts_in_flight);
  }
}

}  // namespace heddle::scheduler

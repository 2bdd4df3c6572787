// SPDX-License-Identifier: Apache-2.0
#include "support/fake_runner.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "support/plan_checks.h"

namespace heddle::testing {

using request::BatchPlan;
using request::MoveKind;
using request::PlannedSequence;
using request::PlannedSnapshot;
using request::SampledToken;
using request::StepOutput;

namespace {

constexpr ToyRow kGarbageRow{.token = -77, .hash = 777};
constexpr ToyState kGarbageState{.count = -1, .hash = 77};
constexpr ToyHidden kGarbageHidden{.count = -1, .hash = 7777};
constexpr TokenId kGarbageToken = -7;

template <typename Values>
void append_all(std::vector<int64_t>& all, const Values& values) {
  all.push_back(static_cast<int64_t>(values.size()));
  all.insert(all.end(), values.begin(), values.end());
}

}  // namespace

FakeRunner::FakeRunner(const runner::PoolSizes& sizes, const request::StepLimits& limits)
    : sizes_(sizes),
      limits_(limits),
      states_(sizes.num_state_slots),
      own_snapshot_slots_(sizes.num_snapshot_slots),
      hidden_(static_cast<size_t>(sizes.max_snapshot_slot() + 1), kGarbageHidden),
      slots_(sizes.max_sequences, sizes.num_pages),
      drawn_(static_cast<size_t>(sizes.max_sequences)),
      kept_drafts_(static_cast<size_t>(sizes.max_sequences)),
      page_in_use_(static_cast<size_t>(sizes.num_pages + 1)) {
  sizes_.flops = kToyFlops;
  const auto add_table = [this](int64_t num_pages) {
    kv_.emplace_back(static_cast<size_t>((num_pages + 1) * sizes_.page_size), kGarbageRow);
  };
  add_table(sizes.num_pages);
  for (const cache::PageWindow& window : sizes.windows) {
    add_table(window.num_pages);
    windows_.push_back(window.window);
  }
}

FakeRunner::Slots::Slots(int64_t count)
    : states(static_cast<size_t>(count + 1), kGarbageState),
      in_use(static_cast<size_t>(count + 1)) {}

void FakeRunner::Slots::set(int32_t slot, const ToyState& value, bool has_memory) {
  states[static_cast<size_t>(slot)] = value;
  in_use[static_cast<size_t>(slot)] = has_memory;
}

int64_t FakeRunner::Slots::num_in_use() const {
  return std::count(in_use.begin(), in_use.end(), true);
}

void FakeRunner::set_snapshot(int32_t slot, const ToyState& value, bool has_memory) {
  snapshots().set(slot, value, has_memory);
  kept_hidden(slot) = kGarbageHidden;
}

void FakeRunner::set_working(int32_t slot, const ToyState& value, bool has_memory) {
  if (!has_own_snapshot_slots()) return set_snapshot(slot, value, has_memory);
  states_.set(slot, value, has_memory);
}

namespace {

class NamedWeights final : public runner::NewWeights {
 public:
  explicit NamedWeights(std::string name) : folder(std::move(name)) {}

  const std::string folder;
};

}  // namespace

Result<std::unique_ptr<runner::NewWeights>> FakeRunner::read_weights(
    const runner::WeightFolder& folder, const std::atomic<bool>& cancelled) const {
  if (on_read_weights) HEDDLE_RETURN_IF_ERROR(on_read_weights(folder, cancelled));
  return std::unique_ptr<runner::NewWeights>(
      std::make_unique<NamedWeights>(folder.model_dir.string()));
}

Status FakeRunner::use_weights(const runner::NewWeights& given) {
  if (num_in_flight_ > 0) complain("weights were exchanged under a step");
  weights = static_cast<const NamedWeights&>(given).folder;
  return {};
}

TokenId FakeRunner::next_token(std::span<const TokenId> tokens,
                               std::span<const TokenId> forbidden) {
  const ToyHidden hidden = toy_hidden_after(tokens);
  return toy_draw({.num_tokens = kVocabSize}, hidden, toy_coin(0, hidden.count), forbidden).value();
}

TokenLogprob FakeRunner::score(std::span<const TokenId> tokens, TokenId token, int32_t num_top) {
  ToyState state;
  for (const TokenId id : tokens) state.advance(id);
  const auto logprob_of = [&state](TokenId id) {
    ToyState behind = state;
    behind.advance(id);
    return -static_cast<float>(behind.hash % 4096) / 256;
  };
  TokenLogprob scored{.token = token, .logprob = logprob_of(token), .top = {}};
  for (TokenId id = 0; id < num_top; ++id) scored.top.emplace_back(id, logprob_of(id));
  return scored;
}

FakeRunner::PlanCopy::PlanCopy(const BatchPlan& source) {
  for (const request::Move& move : source.moves) {
    values.insert(values.end(), {static_cast<int64_t>(move.kind), move.table, move.from, move.to});
  }
  append_all(values, source.tokens);
  append_all(values, source.draft_parents);
  append_all(values, source.pages);
  append_all(values, source.mask_words);
  for (const PlannedSnapshot& snapshot : source.snapshots) {
    values.insert(values.end(), {snapshot.tokens, snapshot.slot, snapshot.keep_hidden});
  }
  const auto append_range = [this](request::PlanRange range) {
    values.insert(values.end(), {range.begin, range.count});
  };
  for (const request::SlotStart& start : source.starts) {
    append_range(start.ending_tokens);
    append_range(start.output_tokens);
    append_range(start.context);
    values.insert(
        values.end(),
        {start.sequence_id, start.batch_slot, static_cast<int64_t>(start.seed), start.choice_index,
         start.return_logprobs, start.top_logprobs, start.prompt_top_logprobs,
         start.num_prompt_tokens, start.min_length, start.max_length});
  }
  for (const request::PageUpdate& update : source.page_updates) {
    append_range(update.pages);
    values.insert(values.end(), {update.batch_slot, update.table, update.first});
  }
  for (const PlannedSequence& sequence : source.sequences) {
    append_range(sequence.new_tokens);
    append_range(sequence.snapshots);
    append_range(sequence.draft_parents);
    values.insert(
        values.end(),
        {sequence.scored.begin, sequence.scored.count, sequence.masks.begin, sequence.masks.count,
         sequence.drafts.begin, sequence.drafts.count, sequence.sequence_id, sequence.batch_slot,
         sequence.feeds_drawn_token, sequence.takes_long_rope, sequence.context_tokens,
         sequence.kv_tokens, sequence.state_slot, sequence.hidden_slot, sequence.sample});
  }
}

bool FakeRunner::PlanCopy::matches(const BatchPlan& plan) const {
  return PlanCopy(plan).values == values;
}

Status FakeRunner::submit(const BatchPlan& plan) {
  HEDDLE_CHECK_LT(num_in_flight_, runner::kMaxStepsInFlight);
  Flight& flight =
      flights_[static_cast<size_t>((first_flight_ + num_in_flight_) % runner::kMaxStepsInFlight)];
  flight = {.plan = &plan, .copy = {}, .output = {}};
  if (checks_plans) flight.copy.emplace(plan);
  if (!lazy) {
    flight.output = compute(plan);
    if (!flight.output->ok()) return flight.output->status();
  }
  ++num_in_flight_;
  return {};
}

Result<StepOutput> FakeRunner::wait() {
  HEDDLE_CHECK_LT(0, num_in_flight_);
  Flight flight = std::move(flights_[static_cast<size_t>(first_flight_)]);
  first_flight_ = (first_flight_ + 1) % runner::kMaxStepsInFlight;
  --num_in_flight_;
  if (flight.copy && !flight.copy->matches(*flight.plan)) {
    complain("the plan changed while it was in flight");
  }
  if (flight.output) return std::move(*flight.output);
  return compute(*flight.plan);
}

void FakeRunner::recycle(StepOutput output) {
  if (std::ssize(recycled_) < runner::kMaxStepsInFlight) recycled_.push_back(std::move(output));
}

void FakeRunner::complain(std::string what) {
  complaints_.push_back(fmt::format("step {}: {}", num_steps_, what));
}

Result<StepOutput> FakeRunner::compute(const BatchPlan& plan) {
  ++num_steps_;
  if (std::exchange(lost_, true)) return device_lost("an earlier step failed");
  if (Status status = slots_.take(plan); !status.ok()) {
    complain(status.message());
    return status;
  }
  if (on_step) HEDDLE_RETURN_IF_ERROR(on_step(plan));
  lost_ = false;
  if (checks_plans) {
    std::vector<std::string> faults;
    const bool can_run = check_plan(plan, sizes_, limits_, slots_, faults);
    for (std::string& fault : faults) complain(std::move(fault));
    if (!can_run) return internal_error("the plan names pages or slots that do not exist");
  }
  StepOutput output;
  if (!recycled_.empty()) {
    output = std::move(recycled_.back());
    recycled_.pop_back();
  }
  output.clear();
  prepare(plan);
  check_contexts(plan);
  for (const PlannedSequence& sequence : plan.sequences) {
    if (had_ended(sequence)) {
      if (sequence.sample) {
        output.tokens.push_back({.sequence_id = sequence.sequence_id,
                                 .token = kGarbageToken,
                                 .skipped = true,
                                 .logprob = {},
                                 .error = {}});
      }
      continue;
    }
    const ToyHidden hidden = sequence.hidden_slot != 0 ? repeat(sequence) : advance(plan, sequence);
    score(plan, sequence, output);
    if (!sequence.sample) continue;
    draw_span(plan, sequence, hidden, output);
    make_drafts(sequence, output);
  }
  check_memory();
  return output;
}

// Carries out what a plan does before the first layer, in its order.
void FakeRunner::prepare(const BatchPlan& plan) {
  for (const request::Move& move : plan.moves) carry_out(move);
}

void FakeRunner::carry_out(const request::Move& move) {
  const auto [kind, table, from, to] = move;
  switch (kind) {
    case MoveKind::kReleasePage:
      fill_page(from, kGarbageRow);
      page_in_use_[static_cast<size_t>(from)] = false;
      return;
    case MoveKind::kReleaseSnapshot:
      set_snapshot(from, kGarbageState, false);
      return;
    case MoveKind::kSave:
      if (states_[from] == kGarbageState) {
        complain(fmt::format("state slot {} is saved and contains nothing", from));
      }
      set_snapshot(to, states_[from], true);
      return;
    case MoveKind::kReleaseState:
      set_working(from, kGarbageState, false);
      return;
    case MoveKind::kZero:
      set_working(to, {}, true);
      return;
    case MoveKind::kRestore:
      if (snapshots()[from] == kGarbageState) {
        complain(fmt::format("state slot {} is copied and contains nothing", from));
      }
      set_working(to, snapshots()[from], true);
      return;
    case MoveKind::kCopyPage: {
      const auto rows = kv_[table].begin();
      std::copy_n(rows + from * sizes_.page_size, sizes_.page_size, rows + to * sizes_.page_size);
      if (table == 0) page_in_use_[static_cast<size_t>(to)] = true;
      return;
    }
  }
}

void FakeRunner::check_memory() {
  if (sizes_.shared_bytes == 0) return;
  const int64_t bytes =
      std::count(page_in_use_.begin(), page_in_use_.end(), true) * sizes_.page_bytes +
      states_.num_in_use() * sizes_.state_slot_bytes +
      own_snapshot_slots_.num_in_use() * sizes_.snapshot_slot_bytes;
  if (bytes > sizes_.shared_bytes) {
    complain(fmt::format("{} bytes are in use, there are {}", bytes, sizes_.shared_bytes));
  }
}

bool FakeRunner::had_ended(const PlannedSequence& sequence) {
  if (!sequence.feeds_drawn_token) return false;
  const DrawnToken& drawn = drawn_[static_cast<size_t>(sequence.batch_slot)];
  const int64_t position = sequence.context_tokens + sequence.new_tokens.count;
  if (drawn.sequence_id != sequence.sequence_id || drawn.position != position) {
    complain(fmt::format(
        "sequence {} feeds token {} from batch slot {}, which has token {} of sequence {}",
        sequence.sequence_id, position, sequence.batch_slot, drawn.position, drawn.sequence_id));
  }
  return drawn.failed ||
         std::ranges::binary_search(slots_[sequence.batch_slot].ending_tokens, drawn.token);
}

// Computes the new tokens: the state in its slot goes on, rows are written from kv_tokens on, and
// attention reads all rows back through the page table.
ToyHidden FakeRunner::advance(const BatchPlan& plan, const PlannedSequence& sequence) {
  const std::span<const PlannedSnapshot> snapshots = plan.snapshots_of(sequence);
  ToyAttention context;
  const ToyState truth = read_context(sequence, context);
  ToyState now = truth;
  if (sizes_.num_state_slots > 0) {
    now = states_[sequence.state_slot];
    if (sequence.context_tokens == 0) now.is_long = sequence.takes_long_rope;
    if (now != truth) {
      complain(fmt::format("sequence {}: state slot {} has {} tokens, the context is {} tokens{}",
                           sequence.sequence_id, sequence.state_slot, now.count,
                           sequence.context_tokens,
                           now.count == truth.count ? ", others or in another order" : ""));
    }
  }
  check_windows(sequence);
  const int64_t first_written = std::max(sequence.context_tokens, sequence.kv_tokens);
  int64_t t = sequence.context_tokens;
  const auto compute = [&](TokenId token) {
    now.advance(token);
    for (size_t table = 1; table < kv_.size(); ++table) {
      row(sequence, t, table) = {token, now.hash, now.is_long};
    }
    const ToyRow& stored = row(sequence, t);
    if (t >= first_written) {
      write_row(sequence, t, {token, now.hash, now.is_long});
    } else if (stored != ToyRow{token, now.hash, now.is_long}) {
      complain(fmt::format("sequence {}: KV row {} is taken as computed and is not this sequence's",
                           sequence.sequence_id, t));
    }
    take_snapshots(snapshots, ++t, now);
  };
  const std::span<const TokenId> new_tokens = plan.new_tokens(sequence);
  const TokenId fed = drawn_[static_cast<size_t>(sequence.batch_slot)].token;
  for (const TokenId token : new_tokens) compute(token);
  if (sequence.feeds_drawn_token) compute(fed);
  slots_.computed(sequence, new_tokens, fed);

  ToyAttention attention;
  for (int64_t i = 0; i < t; ++i) attention.read(row(sequence, i));
  const ToyHidden hidden = hidden_after(sequence, t, now, attention);
  if (sizes_.num_state_slots > 0) {
    set_working(sequence.state_slot, now, true);
    for (const PlannedSnapshot& snapshot : snapshots) {
      if (snapshot.keep_hidden) kept_hidden(snapshot.slot) = hidden;
    }
  }
  return hidden;
}

void FakeRunner::score(const BatchPlan& plan, const PlannedSequence& sequence, StepOutput& output) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < sequence.scored.count; ++i) {
    const int64_t position = sequence.context_tokens + sequence.scored.begin + i + 1;
    while (std::ssize(tokens) < position) tokens.push_back(row(sequence, std::ssize(tokens)).token);
    output.scored.push_back(
        {.sequence_id = sequence.sequence_id,
         .logprob = score(tokens, plan.scored_token(sequence, i),
                          slots_[sequence.batch_slot].start.prompt_top_logprobs),
         .error = score_error ? score_error(sequence, position) : Status()});
  }
}

// Computes the state after the context from its KV rows, which must belong to the sequence's table
// of longrope.
ToyState FakeRunner::read_context(const PlannedSequence& sequence, ToyAttention& attention) {
  ToyState state{.is_long = sequence.takes_long_rope};
  for (int64_t t = 0; t < sequence.context_tokens; ++t) {
    const ToyRow& stored = row(sequence, t);
    if (stored.is_long != state.is_long) {
      complain(fmt::format("sequence {}: KV row {} is of the other table of longrope",
                           sequence.sequence_id, t));
    }
    state.advance(stored.token);
    attention.read(stored);
  }
  return state;
}

// The rows that the first new token sees in the layers that slide are those of its own past.
void FakeRunner::check_windows(const PlannedSequence& sequence) {
  const int64_t context = sequence.context_tokens;
  for (size_t i = 0; i < windows_.size(); ++i) {
    for (int64_t t = std::max<int64_t>(context + 1 - windows_[i], 0); t < context; ++t) {
      if (row(sequence, t, 1 + i) != row(sequence, t)) {
        complain(fmt::format("sequence {}: row {} of the layer that slides is not this sequence's",
                             sequence.sequence_id, t));
      }
    }
  }
}

ToyHidden FakeRunner::hidden_after(const PlannedSequence& sequence, int64_t num_tokens,
                                   const ToyState& state, const ToyAttention& attention) {
  ToyHidden hidden = toy_hidden(state, attention);
  std::vector<ToyRow> seen;
  for (size_t i = 0; i < windows_.size(); ++i) {
    seen.clear();
    for (int64_t t = std::max<int64_t>(num_tokens - windows_[i], 0); t < num_tokens; ++t) {
      seen.push_back(row(sequence, t, 1 + i));
    }
    hidden = toy_hidden(hidden, toy_window(seen));
  }
  return hidden;
}

void FakeRunner::take_snapshots(std::span<const PlannedSnapshot> snapshots, int64_t tokens,
                                const ToyState& now) {
  for (const PlannedSnapshot& snapshot : snapshots) {
    if (snapshot.tokens == tokens) set_snapshot(snapshot.slot, now, true);
  }
}

// The hidden vector of an earlier sequence. The context is complete as for any other sequence: the
// state in the working slot, the KV rows in the pages; the next step goes on from them.
ToyHidden FakeRunner::repeat(const PlannedSequence& sequence) {
  ToyAttention attention;
  const ToyState truth = read_context(sequence, attention);
  const ToyHidden hidden = kept_hidden(sequence.hidden_slot);
  check_windows(sequence);
  if (windows_.empty() && hidden != toy_hidden(truth, attention)) {
    complain(fmt::format(
        "sequence {}: the hidden vector of slot {} is after {} tokens, the context is {} tokens",
        sequence.sequence_id, sequence.hidden_slot, hidden.count, sequence.context_tokens));
  }
  if (states_[sequence.state_slot] != truth) {
    complain(fmt::format("sequence {}: state slot {} has {} tokens, the context is {} tokens",
                         sequence.sequence_id, sequence.state_slot,
                         states_[sequence.state_slot].count, sequence.context_tokens));
  }
  return hidden;
}

// The plan gives a drafter that reads texts their beginnings.
void FakeRunner::check_contexts(const BatchPlan& plan) {
  for (const request::SlotStart& start : plan.starts) {
    const std::span<const TokenId> context = plan.context_of(start);
    for (const PlannedSequence& sequence : plan.sequences) {
      if (sequence.batch_slot != start.batch_slot) continue;
      bool same =
          std::ssize(context) == (limits_.drafter_reads_texts ? sequence.context_tokens : 0);
      for (size_t i = 0; same && i < context.size(); ++i) {
        same = row(sequence, static_cast<int64_t>(i)).token == context[i];
      }
      if (!same) {
        complain(fmt::format("sequence {}: the {} tokens sent as its context are not its first {}",
                             sequence.sequence_id, context.size(), sequence.context_tokens));
      }
    }
  }
}

// Penalties read the output tokens: the last tokens of the sequence.
void FakeRunner::check_output_tokens(const PlannedSequence& sequence, int64_t end) {
  const request::BatchSlot& slot = slots_[sequence.batch_slot];
  if (!request::penalises(slot.start.sampling)) return;
  const int64_t begin = slot.start.num_prompt_tokens;
  bool same = std::ssize(slot.output_tokens) == std::max<int64_t>(end - begin, 0);
  for (int64_t i = begin; same && i < end; ++i) {
    same = row(sequence, i).token == slot.output_tokens[static_cast<size_t>(i - begin)];
  }
  if (!same) {
    complain(fmt::format("sequence {}: its output tokens are not its last {}", sequence.sequence_id,
                         end - begin));
  }
}

// Draws along the drafts as long as they hold. All drafts are computed first, as a device does it
// before it knows: rows of those that are rejected stay behind, their snapshots are garbage.
void FakeRunner::draw_span(const BatchPlan& plan, const PlannedSequence& sequence, ToyHidden hidden,
                           StepOutput& output) {
  const std::vector<TokenId>& ending = slots_[sequence.batch_slot].ending_tokens;
  const int64_t begin = sequence.context_tokens + sequence.num_new_tokens();
  if (Status status = tree_.assign(drafts_of(plan, sequence), plan.parents_of_drafts(sequence));
      !status.ok()) {
    complain(status.message());
    (void)tree_.assign({}, {});
  }
  compute_drafts(sequence, begin);
  const auto draw_at = [&](int32_t node) -> std::optional<TokenId> {
    if (node > 0) hidden = accept(plan, sequence, begin, node);
    const int64_t position = begin + tree_.depths()[static_cast<size_t>(node)];
    check_output_tokens(sequence, position);
    SampledToken& sampled = output.tokens.emplace_back();
    draw(plan, sequence, position, hidden, sampled);
    if (!sampled.error.ok() || std::ranges::binary_search(ending, sampled.token)) return {};
    return sampled.token;
  };
  tree_.walk(draw_at, path_);
  const int64_t accepted = std::ssize(path_) - 1;
  for (int64_t i = accepted; i < sequence.drafts.count; ++i) {
    take_snapshots(plan.snapshots_of(sequence), begin + i + 1, kGarbageState);
  }
  if (verify_fault != VerifyFault::kNone) {
    spoil_accepted(plan, sequence, begin, output.tokens.back());
  }
}

// Those of the plan, or those that it does not know.
std::span<const TokenId> FakeRunner::drafts_of(const BatchPlan& plan,
                                               const PlannedSequence& sequence) {
  const std::span<const TokenId> drafts = plan.drafts(sequence);
  const auto num_kept = std::ranges::count(drafts, request::kKeptDraft);
  if (num_kept == 0) return drafts;
  const KeptDrafts& kept = kept_drafts_[static_cast<size_t>(sequence.batch_slot)];
  if (num_kept < std::ssize(drafts) || kept.sequence_id != sequence.sequence_id ||
      num_kept > std::ssize(kept.tokens)) {
    complain(fmt::format("sequence {}: {} of its {} drafts were kept; there are {} of sequence {}",
                         sequence.sequence_id, num_kept, drafts.size(), kept.tokens.size(),
                         kept.sequence_id));
    return {};
  }
  return std::span(kept.tokens).first(drafts.size());
}

// Each from its parent, into rows behind the text in the order of the drafts.
void FakeRunner::compute_drafts(const PlannedSequence& sequence, int64_t begin) {
  if (tree_.num_nodes() == 1) return;
  nodes_.resize(static_cast<size_t>(tree_.num_nodes()));
  nodes_[0] = {};
  nodes_[0].state.is_long = sequence.takes_long_rope;
  for (int64_t t = 0; t < begin; ++t) {
    nodes_[0].state.advance(row(sequence, t).token);
    nodes_[0].attention.read(row(sequence, t));
  }
  const bool has_states = sizes_.num_state_slots > 0;
  if (has_states) nodes_[0].state = states_[sequence.state_slot];
  for (size_t i = 1; i < nodes_.size(); ++i) {
    const auto parent = static_cast<size_t>(tree_.parents()[i]);
    Node& node = nodes_[i] = nodes_[parent];
    if (has_states && parent + 1 < i && verify_fault == VerifyFault::kStateOfWrongParent) {
      node.state = nodes_[i - 1].state;
      ++num_verify_faults_;
    }
    if (has_states && parent + 1 < i && verify_fault == VerifyFault::kWindowOfWrongParent) {
      node.state.convolved = nodes_[i - 1].state.convolved;
      ++num_verify_faults_;
    }
    const TokenId token = tree_.token(static_cast<int32_t>(i));
    node.state.advance(token);
    node.row = {token, node.state.hash, node.state.is_long};
    node.attention.read(node.row);
    write_row(sequence, begin + static_cast<int64_t>(i) - 1, node.row);
  }
}

// The next token of the text is that of a draft: its row moves to the place behind those before
// it, which no draft that may still be accepted lies in.
ToyHidden FakeRunner::accept(const BatchPlan& plan, const PlannedSequence& sequence, int64_t begin,
                             int32_t node) {
  const Node& accepted = nodes_[static_cast<size_t>(node)];
  const int64_t num_tokens = begin + tree_.depths()[static_cast<size_t>(node)];
  write_row(sequence, num_tokens - 1, accepted.row);
  take_snapshots(plan.snapshots_of(sequence), num_tokens, accepted.state);
  if (sizes_.num_state_slots > 0) set_working(sequence.state_slot, accepted.state, true);
  slots_.accepted(sequence, tree_.token(node));
  return hidden_after(sequence, num_tokens, accepted.state, accepted.attention);
}

// Faults of what remains of a verification.
void FakeRunner::spoil_accepted(const BatchPlan& plan, const PlannedSequence& sequence,
                                int64_t begin, const SampledToken& last) {
  const int64_t accepted = std::ssize(path_) - 1;
  const auto state_of = [this](int64_t node) { return nodes_[static_cast<size_t>(node)].state; };
  const auto publish = [&](int64_t node) {
    set_working(sequence.state_slot, state_of(node), true);
    ++num_verify_faults_;
  };
  if (tree_.num_nodes() == 1) return;
  switch (verify_fault) {
    case VerifyFault::kStateOneLate:
      if (accepted > 0 && sizes_.num_state_slots > 0) publish(path_[path_.size() - 2]);
      return;
    case VerifyFault::kStateOfWrongNode:
      if (sizes_.num_state_slots > 0 && path_.back() != accepted) publish(accepted);
      return;
    case VerifyFault::kBonusInSnapshot:
      for (const PlannedSnapshot& snapshot : plan.snapshots_of(sequence)) {
        if (snapshot.tokens != begin + accepted || snapshot.keep_hidden || !last.error.ok()) {
          continue;
        }
        ToyState beyond = state_of(path_.back());
        beyond.advance(last.token);
        set_snapshot(snapshot.slot, beyond, true);
        ++num_verify_faults_;
      }
      return;
    case VerifyFault::kRowsNotMoved:
      for (int64_t i = 1; i <= accepted; ++i) {
        if (path_[static_cast<size_t>(i)] == i) continue;
        write_row(sequence, begin + i - 1, nodes_[static_cast<size_t>(i)].row);
        ++num_verify_faults_;
      }
      return;
    default:  // done before
      return;
  }
}

// The position whose coin the draw at the end of the path takes.
int64_t FakeRunner::coin_position(int64_t position) {
  const int32_t node = path_.back();
  const int32_t depth = tree_.depths()[static_cast<size_t>(node)];
  int64_t taken = position;
  if (!vocabulary.seeded) return taken;
  if (verify_fault == VerifyFault::kCoinOfParent && node > 0) taken = position - 1;
  if (verify_fault == VerifyFault::kCoinOfRow) taken = position - depth + node;
  if (taken != position) ++num_verify_faults_;
  return taken;
}

// Goes on from the last draw in a text of its own.
void FakeRunner::make_drafts(const PlannedSequence& sequence, StepOutput& output) {
  const SampledToken& last = output.tokens.back();
  const request::BatchSlot& slot = slots_[sequence.batch_slot];
  KeptDrafts& kept = kept_drafts_[static_cast<size_t>(sequence.batch_slot)];
  kept = {.sequence_id = sequence.sequence_id, .tokens = {}};
  if (!make_draft || sequence.wanted_drafts == 0 || !last.error.ok() ||
      std::ranges::binary_search(slot.ending_tokens, last.token)) {
    return;
  }

  struct Text {
    ToyState now;
    ToyAttention attention;
    std::vector<ToyRow> rows;

    void add(TokenId token) {
      now.advance(token);
      rows.push_back({token, now.hash});
      attention.read(rows.back());
    }
  };

  std::vector<Text> texts(1);  // up to the last token drawn, and up to each draft
  const int64_t position = drawn_[static_cast<size_t>(sequence.batch_slot)].position;
  for (int64_t t = 0; t < position; ++t) texts[0].add(row(sequence, t).token);
  texts[0].add(last.token);
  for (int32_t i = 0; i < sequence.wanted_drafts; ++i) {
    const auto mixed = static_cast<int32_t>((position * 7 + i * 5) % (i + 1));
    const int32_t parent = branches_drafts ? mixed : i;
    Text text = texts[static_cast<size_t>(parent)];
    const ToyHidden hidden = toy_hidden(text.now, text.attention, windows_, text.rows);
    const int64_t length = std::ssize(text.rows);
    const auto right = toy_draw(vocabulary, hidden, toy_coin(slot.start.seed, length),
                                slot.forbidden_tokens(length));
    const std::optional<TokenId> draft = make_draft(right.value_or(0));
    if (!draft) return;
    if (sequence.may_keep_drafts) kept.tokens.push_back(*draft);
    output.drafts.push_back({.sequence_id = sequence.sequence_id,
                             .token = sequence.may_keep_drafts ? request::kKeptDraft : *draft,
                             .parent = parent - 1});
    text.add(*draft);
    texts.push_back(std::move(text));
  }
}

void FakeRunner::write_row(const PlannedSequence& sequence, int64_t token, const ToyRow& value) {
  for (size_t table = 0; table < kv_.size(); ++table) row(sequence, token, table) = value;
  const std::vector<int32_t>& pages = slots_[sequence.batch_slot].pages[0].ids;
  page_in_use_[static_cast<size_t>(pages[static_cast<size_t>(token / sizes_.page_size)])] = true;
}

void FakeRunner::draw(const BatchPlan& plan, const PlannedSequence& sequence, int64_t position,
                      const ToyHidden& hidden, SampledToken& sampled) {
  const request::BatchSlot& slot = slots_[sequence.batch_slot];
  sampled.sequence_id = sequence.sequence_id;
  sampled.skipped = false;
  const int64_t num_drawn = position - slot.start.num_prompt_tokens;
  sampled.error = sequence_error ? sequence_error(sequence, num_drawn) : Status();
  std::optional<TokenId> token = script ? script(sequence, num_drawn) : std::nullopt;
  if (!token) {
    token = toy_draw(vocabulary, hidden, toy_coin(slot.start.seed, coin_position(position)),
                     slot.forbidden_tokens(position));
  }
  if (token && !sequence.masks.empty()) {
    token = toy_allowed(plan.mask_of(sequence, path_.back()), *token);
  }
  if (!token && sampled.error.ok()) sampled.error = internal_error("every token is forbidden");
  sampled.token = sampled.error.ok() ? *token : kGarbageToken;
  drawn_[static_cast<size_t>(sequence.batch_slot)] = {.sequence_id = sequence.sequence_id,
                                                      .position = position,
                                                      .token = sampled.token,
                                                      .failed = !sampled.error.ok()};
  if (!slot.start.return_logprobs) return;
  sampled.logprob = {.token = sampled.token, .logprob = -0.5f, .top = {}};
  for (TokenId i = 0; i < slot.start.top_logprobs; ++i) sampled.logprob.top.emplace_back(i, -1.0f);
}

void FakeRunner::fill_page(int32_t page, const ToyRow& row) {
  std::fill_n(kv_[0].begin() + static_cast<int64_t>(page) * sizes_.page_size, sizes_.page_size,
              row);
}

ToyRow& FakeRunner::row(const PlannedSequence& sequence, int64_t token, size_t table) {
  const std::vector<int32_t>& pages = slots_[sequence.batch_slot].pages[table].ids;
  const int64_t page = pages[static_cast<size_t>(token / sizes_.page_size)];
  return kv_[table][static_cast<size_t>(page * sizes_.page_size + token % sizes_.page_size)];
}

}  // namespace heddle::testing

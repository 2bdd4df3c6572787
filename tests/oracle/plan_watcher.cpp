// SPDX-License-Identifier: Apache-2.0
#include "plan_watcher.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace heddle::oracle {

using request::BatchPlan;
using request::BatchSlot;
using request::Move;
using request::MoveKind;
using request::PlannedSequence;
using request::PlannedSnapshot;
using request::SampledToken;
using request::SlotStart;
using request::StepOutput;

const char* name_of(Damage damage) {
  switch (damage) {
    case Damage::kNone:
      return "None";
    case Damage::kLabelTooSmall:
      return "LabelTooSmall";
    case Damage::kLabelTooLarge:
      return "LabelTooLarge";
    case Damage::kSnapshotDropped:
      return "SnapshotDropped";
    case Damage::kSlotMixedUp:
      return "SlotMixedUp";
    case Damage::kSlotReusedEarly:
      return "SlotReusedEarly";
    case Damage::kStateNotZeroed:
      return "StateNotZeroed";
    case Damage::kStateCopyDropped:
      return "StateCopyDropped";
    case Damage::kSaveDropped:
      return "SaveDropped";
    case Damage::kSaveMixedUp:
      return "SaveMixedUp";
    case Damage::kKvTokensTooLarge:
      return "KvTokensTooLarge";
    case Damage::kPageSwapped:
      return "PageSwapped";
    case Damage::kWindowPageSwapped:
      return "WindowPageSwapped";
    case Damage::kPageCopyDropped:
      return "PageCopyDropped";
    case Damage::kEndComputed:
      return "EndComputed";
    case Damage::kBatchSlotMixedUp:
      return "BatchSlotMixedUp";
    case Damage::kDraftBelieved:
      return "DraftBelieved";
    case Damage::kAcceptedLost:
      return "AcceptedLost";
    case Damage::kRejectedRowKept:
      return "RejectedRowKept";
  }
  return "?";
}

PlanCounts& PlanCounts::operator+=(const PlanCounts& other) {
  steps += other.steps;
  steps_in_flight += other.steps_in_flight;
  mixed_steps += other.mixed_steps;
  fed_tokens += other.fed_tokens;
  skipped += other.skipped;
  snapshots += other.snapshots;
  draft_snapshots += other.draft_snapshots;
  trees += other.trees;
  made_drafts += other.made_drafts;
  kept_drafts += other.kept_drafts;
  hidden_kept += other.hidden_kept;
  hidden_repeats += other.hidden_repeats;
  state_copies += other.state_copies;
  saves += other.saves;
  page_copies += other.page_copies;
  replayed_rows += other.replayed_rows;
  shared_pages += other.shared_pages;
  shared_window_pages += other.shared_window_pages;
  window_page_copies += other.window_page_copies;
  restarts += other.restarts;
  given_back += other.given_back;
  outgrown += other.outgrown;
  damages += other.damages;
  return *this;
}

PlanWatcher::PlanWatcher(runner::Runner& device, Damage damage, uint64_t seed, PlanCounts& counts)
    : device_(device),
      damage_(damage),
      dice_(seed),
      counts_(counts),
      slots_(device.pool_sizes().max_sequences, device.pool_sizes().num_pages) {}

Status PlanWatcher::submit(const BatchPlan& plan) {
  HEDDLE_RETURN_IF_ERROR(slots_.take(plan));
  count(plan);
  const BatchPlan* submitted = &plan;
  if (damage_ != Damage::kNone) {
    DamagedPlan& damaged = plans_[static_cast<size_t>(num_submitted_ % runner::kMaxStepsInFlight)];
    damaged = {.plan = plan, .fed = {}};
    damage_plan(damaged);
    submitted = &damaged.plan;
  }
  HEDDLE_RETURN_IF_ERROR(device_.submit(*submitted));
  ++num_submitted_;
  return {};
}

Result<StepOutput> PlanWatcher::wait() {
  const auto oldest = static_cast<size_t>(num_waited_++ % runner::kMaxStepsInFlight);
  Result<StepOutput> output = device_.wait();
  if (!output.ok()) return output;
  hide_computed_ends(plans_[oldest], *output);
  lose_accepted(*output);
  for (const SampledToken& sampled : output->tokens) {
    if (sampled.skipped) ++counts_.skipped;
  }
  counts_.made_drafts += std::ssize(output->drafts);
  counts_.kept_drafts +=
      std::ranges::count(output->drafts, request::kKeptDraft, &request::MadeDraft::token);
  return output;
}

// The device has gone one token further than the host knows.
void PlanWatcher::lose_accepted(StepOutput& output) {
  if (damage_ != Damage::kAcceptedLost) return;
  std::vector<SampledToken>& tokens = output.tokens;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const bool last = i + 1 == tokens.size() || tokens[i + 1].sequence_id != tokens[i].sequence_id;
    if (!last || tokens[i - 1].sequence_id != tokens[i].sequence_id) continue;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i));
    ++counts_.damages;
    return;
  }
}

// Reports to the host that the device left them out.
void PlanWatcher::hide_computed_ends(const DamagedPlan& damaged, StepOutput& output) {
  if (damage_ != Damage::kEndComputed) return;
  for (SampledToken& sampled : output.tokens) {
    const std::vector<TokenId>& ending = ending_[sampled.sequence_id];
    const auto drawn = last_drawn_.find(sampled.sequence_id);
    if (damaged.fed.contains(sampled.sequence_id) && drawn != last_drawn_.end() &&
        std::ranges::find(ending, drawn->second) != ending.end()) {
      sampled.skipped = true;
    } else {
      last_drawn_[sampled.sequence_id] = sampled.token;
    }
  }
}

// Whether its working slot is filled anew; without states, whether it has no context.
bool PlanWatcher::begins(const BatchPlan& plan, const PlannedSequence& sequence) {
  const auto fills = [&](const Move& move) { return move.to == sequence.state_slot; };
  return sequence.context_tokens == 0 ||
         std::ranges::any_of(plan.moves_of(MoveKind::kRestore), fills);
}

void PlanWatcher::count(const BatchPlan& plan) {
  ++counts_.steps;
  if (num_submitted_ > num_waited_) ++counts_.steps_in_flight;
  for (const Move& move : plan.moves) {
    switch (move.kind) {
      case MoveKind::kRestore:
        ++counts_.state_copies;
        break;
      case MoveKind::kCopyPage:
        ++(move.table == 0 ? counts_.page_copies : counts_.window_page_copies);
        break;
      case MoveKind::kSave:
        ++counts_.saves;
        break;
      case MoveKind::kZero:
        break;
      default:
        ++counts_.given_back;
    }
  }
  bool prefills = false;
  bool decodes = false;
  std::vector<bool> is_read(static_cast<size_t>(pool_sizes().num_pages + 1));
  std::set<std::pair<uint32_t, int32_t>> in_windows;  // table and page
  for (const PlannedSequence& sequence : plan.sequences) {
    const int64_t num_new = sequence.num_new_tokens();
    const bool known = !known_.insert(sequence.sequence_id).second;
    if (known && begins(plan, sequence)) ++counts_.restarts;
    if (sequence.takes_long_rope && long_.insert(sequence.sequence_id).second && known) {
      ++counts_.outgrown;
    }
    (num_new > 1 ? prefills : decodes) = true;
    counts_.fed_tokens += sequence.feeds_drawn_token ? 1 : 0;
    counts_.hidden_repeats += sequence.hidden_slot != 0 ? 1 : 0;
    const std::span<const PlannedSnapshot> snapshots = plan.snapshots_of(sequence);
    counts_.snapshots += std::ssize(snapshots);
    counts_.trees += sequence.draft_parents.empty() ? 0 : 1;
    counts_.draft_snapshots += std::ranges::count_if(
        snapshots, [&](const auto& one) { return one.tokens > sequence.context_tokens + num_new; });
    counts_.hidden_kept +=
        std::ranges::count_if(snapshots, [](const auto& one) { return one.keep_hidden; });
    counts_.replayed_rows +=
        std::clamp<int64_t>(sequence.kv_tokens - sequence.context_tokens, 0, num_new);
    for (const int32_t page : slots_[sequence.batch_slot].pages[0].ids) {
      if (is_read[static_cast<size_t>(page)]) ++counts_.shared_pages;
      is_read[static_cast<size_t>(page)] = true;
    }
    for (uint32_t table = 1; table < pool_sizes().num_page_tables(); ++table) {
      const std::vector<int32_t>& window = slots_[sequence.batch_slot].pages[table].ids;
      const int64_t first = pool_sizes().windows[table - 1].first_page(sequence.context_tokens,
                                                                       pool_sizes().page_size);
      for (auto i = static_cast<size_t>(first); i < window.size(); ++i) {
        if (!in_windows.emplace(table, window[i]).second) ++counts_.shared_window_pages;
      }
    }
  }
  if (prefills && decodes) ++counts_.mixed_steps;
}

void PlanWatcher::damage_plan(DamagedPlan& damaged) {
  if (damage_once(damaged)) ++counts_.damages;
  for (const PlannedSequence& sequence : damaged.plan.sequences) {
    draft_ends_[sequence.sequence_id] = sequence.context_tokens + sequence.num_rows();
    for (const PlannedSnapshot& snapshot : damaged.plan.snapshots_of(sequence)) {
      published_.push_back(snapshot.slot);
    }
  }
  for (const Move& save : damaged.plan.moves_of(MoveKind::kSave)) published_.push_back(save.to);
}

// The last one of its kind.
bool PlanWatcher::drop_move(BatchPlan& plan, MoveKind kind) {
  const std::span<const Move> moves = plan.moves_of(kind);
  if (moves.empty()) return false;
  plan.moves.erase(plan.moves.begin() + (&moves.back() - plan.moves.data()));
  return true;
}

// Whether there was something to damage.
bool PlanWatcher::damage_once(DamagedPlan& damaged) {
  BatchPlan& plan = damaged.plan;
  const auto first_sequence = [&plan](const auto& fits) -> PlannedSequence* {
    const auto found = std::find_if(plan.sequences.begin(), plan.sequences.end(), fits);
    return found == plan.sequences.end() ? nullptr : &*found;
  };
  switch (damage_) {
    case Damage::kNone:
      return false;
    case Damage::kLabelTooSmall:
      return move_label(damaged, -1);
    case Damage::kLabelTooLarge:
      return move_label(damaged, +1);
    case Damage::kSnapshotDropped: {
      PlannedSequence* victim =
          first_sequence([](const auto& sequence) { return !sequence.snapshots.empty(); });
      if (victim == nullptr) return false;
      ++victim->snapshots.begin;
      --victim->snapshots.count;
      return true;
    }
    case Damage::kSlotMixedUp:
      for (Move& copy : plan.moves) {
        if (copy.kind != MoveKind::kRestore) continue;
        for (const int32_t slot : published_) {
          if (slot == copy.from || slot == copy.to) continue;
          copy.from = slot;
          return true;
        }
      }
      return false;
    case Damage::kSlotReusedEarly:
      return reuse_slot(damaged);
    case Damage::kStateNotZeroed:
      return drop_move(plan, MoveKind::kZero);
    case Damage::kStateCopyDropped:
      return drop_move(plan, MoveKind::kRestore);
    case Damage::kSaveDropped:
      return drop_move(plan, MoveKind::kSave);
    case Damage::kSaveMixedUp:
      for (Move& save : plan.moves) {
        if (save.kind != MoveKind::kSave) continue;
        for (const PlannedSequence& sequence : plan.sequences) {
          if (sequence.state_slot == save.from) continue;
          save.from = sequence.state_slot;
          return true;
        }
      }
      return false;
    case Damage::kKvTokensTooLarge: {
      PlannedSequence* victim = first_sequence([](const PlannedSequence& sequence) {
        return sequence.kv_tokens < sequence.context_tokens + sequence.num_new_tokens();
      });
      if (victim == nullptr) return false;
      victim->kv_tokens = std::max(victim->kv_tokens, victim->context_tokens) + 1;
      return true;
    }
    case Damage::kPageSwapped:
      return swap_pages(damaged);
    case Damage::kWindowPageSwapped:
      return swap_window_pages(damaged);
    case Damage::kPageCopyDropped:
      return drop_move(plan, MoveKind::kCopyPage);
    case Damage::kEndComputed:
      hide_ending_tokens(plan);
      for (const PlannedSequence& sequence : plan.sequences) {
        const bool ends = !ending_[sequence.sequence_id].empty();
        if (sequence.feeds_drawn_token && sequence.sample && ends) {
          damaged.fed.insert(sequence.sequence_id);
        }
      }
      return !damaged.fed.empty();
    case Damage::kDraftBelieved: {
      PlannedSequence* victim = first_sequence([&plan](const auto& sequence) {
        return sequence.drafts.count > 0 && sequence.draft_parents.empty() &&
               plan.drafts(sequence).front() != request::kKeptDraft;
      });
      if (victim == nullptr) return false;
      // Drafts lie behind the new tokens.
      ++victim->new_tokens.count;
      ++victim->drafts.begin;
      --victim->drafts.count;
      return true;
    }
    case Damage::kAcceptedLost:  // when the output is there
      return false;
    case Damage::kRejectedRowKept:
      return keep_rejected_row(damaged);
    case Damage::kBatchSlotMixedUp: {
      // The scheduler aborts if a sequence is left out that has not ended.
      hide_ending_tokens(plan);
      PlannedSequence* victim = first_sequence([this](const auto& sequence) {
        return sequence.feeds_drawn_token && !shows_ending_.contains(sequence.sequence_id);
      });
      const auto other =
          std::find_if(plan.sequences.begin(), plan.sequences.end(), [&](const auto& sequence) {
            return victim != nullptr && sequence.batch_slot != victim->batch_slot &&
                   !shows_ending_.contains(sequence.sequence_id);
          });
      if (victim == nullptr || other == plan.sequences.end()) return false;
      // All of the slots' contents follow their sequences, except the tokens drawn last.
      resend_swapped(*victim, *other, plan);
      return true;
    }
  }
  return false;
}

bool PlanWatcher::move_label(DamagedPlan& damaged, int64_t by) {
  for (const PlannedSequence& sequence : damaged.plan.sequences) {
    const int64_t end = sequence.context_tokens + sequence.num_rows();
    for (int32_t i = 0; i < sequence.snapshots.count; ++i) {
      PlannedSnapshot& snapshot =
          damaged.plan.snapshots[static_cast<size_t>(sequence.snapshots.begin + i)];
      const int64_t moved = snapshot.tokens + by;
      if (snapshot.keep_hidden || moved <= sequence.context_tokens || moved > end) continue;
      snapshot.tokens = moved;
      return true;
    }
  }
  return false;
}

// Sends the first two pages of a sequence that has written them once more, the wrong way round.
bool PlanWatcher::swap_pages(DamagedPlan& damaged) {
  BatchPlan& plan = damaged.plan;
  for (const PlannedSequence& sequence : plan.sequences) {
    if (sequence.context_tokens < 2 * pool_sizes().page_size) continue;
    const std::vector<int32_t>& pages = slots_[sequence.batch_slot].pages[0].ids;
    const std::array swapped = {pages[1], pages[0]};
    plan.page_updates.push_back(
        {.batch_slot = sequence.batch_slot, .pages = plan.add_pages(swapped)});
    return true;
  }
  return false;
}

// The first two that a window reads in full.
bool PlanWatcher::swap_window_pages(DamagedPlan& damaged) {
  const int64_t page_size = pool_sizes().page_size;
  BatchPlan& plan = damaged.plan;
  if (pool_sizes().windows.empty() || pool_sizes().windows[0].window < 3 * page_size) return false;
  for (const PlannedSequence& sequence : plan.sequences) {
    const std::vector<int32_t>& ids = slots_[sequence.batch_slot].pages[1].ids;
    const int64_t first = pool_sizes().windows[0].first_page(sequence.context_tokens, page_size);
    const int64_t context = sequence.context_tokens / page_size;
    if (std::min(std::ssize(ids), context) - first < 3) continue;
    const auto index = static_cast<size_t>(first + 1);
    const std::array swapped = {ids[index + 1], ids[index]};
    plan.page_updates.push_back({.batch_slot = sequence.batch_slot,
                                 .table = 1,
                                 .first = static_cast<int32_t>(index),
                                 .pages = plan.add_pages(swapped)});
    return true;
  }
  return false;
}

void PlanWatcher::hide_ending_tokens(BatchPlan& plan) {
  for (SlotStart& start : plan.starts) {
    if (start.min_length > start.num_prompt_tokens) {  // they say what may not be drawn, too
      shows_ending_.insert(start.sequence_id);
      continue;
    }
    const std::span<const TokenId> ending = plan.ending_tokens(start);
    ending_[start.sequence_id].assign(ending.begin(), ending.end());
    start.ending_tokens = {};
  }
}

// Two sequences change batch slots, with everything but the tokens drawn last.
void PlanWatcher::resend_swapped(PlannedSequence& one, PlannedSequence& other, BatchPlan& plan) {
  std::swap(one.batch_slot, other.batch_slot);
  for (const auto& [sequence, from] :
       {std::pair(&one, other.batch_slot), std::pair(&other, one.batch_slot)}) {
    const BatchSlot& slot = slots_[from];
    SlotStart start = slot.start;
    start.batch_slot = sequence->batch_slot;
    start.ending_tokens = {};
    start.output_tokens = plan.add_tokens(slot.output_tokens);
    start.context = {};
    plan.starts.push_back(start);
    for (uint32_t table = 0; table < slot.pages.size(); ++table) {
      const request::PageList& list = slot.pages[table];
      if (list.ids.empty()) continue;
      plan.page_updates.push_back(
          {.batch_slot = sequence->batch_slot,
           .table = table,
           .first = static_cast<int32_t>(list.first),
           .pages = plan.add_pages(std::span(list.ids).subspan(static_cast<size_t>(list.first)))});
    }
  }
}

// A slot that is reused too early: another sequence begins in it, or another state is saved there.
bool PlanWatcher::reuse_slot(DamagedPlan& damaged) {
  if (published_.empty()) return false;
  const int32_t slot =
      published_[static_cast<size_t>(dice_.between(0, std::ssize(published_) - 1))];
  BatchPlan& plan = damaged.plan;
  const auto uses = [&](const PlannedSequence& sequence) {
    return (!has_own_snapshot_slots() && sequence.state_slot == slot) ||
           std::ranges::any_of(plan.snapshots_of(sequence),
                               [slot](const auto& snapshot) { return snapshot.slot == slot; });
  };
  const auto copies = [slot](const Move& move) {
    return (move.kind == MoveKind::kRestore || move.kind == MoveKind::kSave) &&
           (move.from == slot || move.to == slot);
  };
  if (std::ranges::any_of(plan.sequences, uses) || std::ranges::any_of(plan.moves, copies)) {
    return false;
  }
  plan.add_move(
      has_own_snapshot_slots()
          ? Move{.kind = MoveKind::kSave, .from = plan.sequences[0].state_slot, .to = slot}
          : Move{.kind = MoveKind::kZero, .to = slot});
  return true;
}

// Behind the tokens that a step accepted lie the rows of drafts that it rejected.
bool PlanWatcher::keep_rejected_row(DamagedPlan& damaged) {
  for (PlannedSequence& sequence : damaged.plan.sequences) {
    const auto starts = [&](const auto& start) { return start.batch_slot == sequence.batch_slot; };
    if (std::ranges::any_of(damaged.plan.starts, starts) || sequence.num_new_tokens() == 0 ||
        sequence.context_tokens >= draft_ends_[sequence.sequence_id]) {
      continue;
    }
    sequence.kv_tokens = sequence.context_tokens + 1;
    return true;
  }
  return false;
}

}  // namespace heddle::oracle

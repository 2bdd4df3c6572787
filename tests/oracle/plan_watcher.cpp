// SPDX-License-Identifier: Apache-2.0
#include "plan_watcher.h"

#include <algorithm>
#include <utility>

namespace heddle::oracle {

using request::BatchPlan;
using request::IdCopy;
using request::PlannedSequence;
using request::SampledToken;
using request::StateSnapshot;
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
  damages += other.damages;
  return *this;
}

PlanWatcher::PlanWatcher(runner::Runner& device, Damage damage, uint64_t seed, PlanCounts& counts)
    : device_(device), damage_(damage), dice_(seed), counts_(counts) {}

Status PlanWatcher::submit(const BatchPlan& plan) {
  count(plan);
  const BatchPlan* submitted = &plan;
  if (damage_ != Damage::kNone) {
    DamagedPlan& damaged = plans_[static_cast<size_t>(num_submitted_ % runner::kMaxStepsInFlight)];
    damaged = {.plan = plan, .snapshots = {}, .pages = {}, .ending = {}};
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
  for (const SampledToken& sampled : output->tokens) {
    if (sampled.skipped) ++counts_.skipped;
  }
  return output;
}

// Reports to the host that the device left them out.
void PlanWatcher::hide_computed_ends(const DamagedPlan& damaged, StepOutput& output) {
  if (damage_ != Damage::kEndComputed) return;
  for (SampledToken& sampled : output.tokens) {
    const auto ending = damaged.ending.find(sampled.sequence_id);
    const auto drawn = last_drawn_.find(sampled.sequence_id);
    if (ending != damaged.ending.end() && drawn != last_drawn_.end() &&
        std::find(ending->second.begin(), ending->second.end(), drawn->second) !=
            ending->second.end()) {
      sampled.skipped = true;
    } else {
      last_drawn_[sampled.sequence_id] = sampled.token;
    }
  }
}

// Whether its working slot is filled anew; without states, whether it has no context.
bool PlanWatcher::begins(const BatchPlan& plan, const PlannedSequence& sequence) {
  const auto fills = [&](const IdCopy& copy) { return copy.to == sequence.state_slot; };
  return sequence.context_tokens == 0 ||
         std::any_of(plan.restore_snapshots.begin(), plan.restore_snapshots.end(), fills);
}

void PlanWatcher::count(const BatchPlan& plan) {
  ++counts_.steps;
  if (num_submitted_ > num_waited_) ++counts_.steps_in_flight;
  counts_.state_copies += std::ssize(plan.restore_snapshots);
  counts_.page_copies += std::ssize(plan.copy_pages);
  counts_.window_page_copies += std::ssize(plan.copy_window_pages);
  counts_.saves += std::ssize(plan.save_snapshots);
  counts_.given_back += std::ssize(plan.unused_pages) + std::ssize(plan.unused_state_slots) +
                        std::ssize(plan.unused_snapshot_slots);
  bool prefills = false;
  bool decodes = false;
  std::vector<bool> is_read(static_cast<size_t>(pool_sizes().num_pages + 1));
  std::vector<bool> is_in_window(static_cast<size_t>(pool_sizes().window_pages.num_pages + 1));
  for (const PlannedSequence& sequence : plan.sequences) {
    const int64_t num_new = sequence.num_new_tokens();
    const bool known = !known_.insert(sequence.sequence_id).second;
    if (known && begins(plan, sequence)) ++counts_.restarts;
    (num_new > 1 ? prefills : decodes) = true;
    counts_.fed_tokens += sequence.feeds_drawn_token ? 1 : 0;
    counts_.hidden_repeats += sequence.hidden_slot != 0 ? 1 : 0;
    counts_.snapshots += std::ssize(sequence.snapshots);
    counts_.hidden_kept +=
        std::count_if(sequence.snapshots.begin(), sequence.snapshots.end(),
                      [](const StateSnapshot& snapshot) { return snapshot.keep_hidden; });
    counts_.replayed_rows +=
        std::clamp<int64_t>(sequence.kv_tokens - sequence.context_tokens, 0, num_new);
    for (const int32_t page : sequence.pages) {
      if (is_read[static_cast<size_t>(page)]) ++counts_.shared_pages;
      is_read[static_cast<size_t>(page)] = true;
    }
    for (const int32_t page : sequence.window_pages) {
      if (is_in_window[static_cast<size_t>(page)]) ++counts_.shared_window_pages;
      is_in_window[static_cast<size_t>(page)] = true;
    }
  }
  if (prefills && decodes) ++counts_.mixed_steps;
}

void PlanWatcher::damage_plan(DamagedPlan& damaged) {
  if (damage_once(damaged)) ++counts_.damages;
  for (const PlannedSequence& sequence : damaged.plan.sequences) {
    for (const StateSnapshot& snapshot : sequence.snapshots) {
      published_.push_back(snapshot.slot);
    }
  }
  for (const IdCopy& save : damaged.plan.save_snapshots) published_.push_back(save.to);
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
      victim->snapshots = victim->snapshots.subspan(1);
      return true;
    }
    case Damage::kSlotMixedUp:
      for (IdCopy& copy : plan.restore_snapshots) {
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
      if (plan.zero_state_slots.empty()) return false;
      plan.zero_state_slots.pop_back();
      return true;
    case Damage::kStateCopyDropped:
      if (plan.restore_snapshots.empty()) return false;
      plan.restore_snapshots.pop_back();
      return true;
    case Damage::kSaveDropped:
      if (plan.save_snapshots.empty()) return false;
      plan.save_snapshots.pop_back();
      return true;
    case Damage::kSaveMixedUp:
      for (IdCopy& save : plan.save_snapshots) {
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
      if (plan.copy_pages.empty()) return false;
      plan.copy_pages.pop_back();
      return true;
    case Damage::kEndComputed: {
      for (PlannedSequence& sequence : plan.sequences) {
        if (!sequence.feeds_drawn_token || !sequence.sample) continue;
        damaged.ending[sequence.sequence_id].assign(sequence.ending_tokens.begin(),
                                                    sequence.ending_tokens.end());
        sequence.ending_tokens = {};
      }
      return !damaged.ending.empty();
    }
    case Damage::kBatchSlotMixedUp: {
      PlannedSequence* victim =
          first_sequence([](const auto& sequence) { return sequence.feeds_drawn_token; });
      const auto other =
          std::find_if(plan.sequences.begin(), plan.sequences.end(), [&](const auto& sequence) {
            return victim != nullptr && sequence.batch_slot != victim->batch_slot;
          });
      if (victim == nullptr || other == plan.sequences.end()) return false;
      std::swap(victim->batch_slot, other->batch_slot);
      // The scheduler aborts if a sequence is left out that has not ended.
      for (PlannedSequence& sequence : plan.sequences) sequence.ending_tokens = {};
      return true;
    }
  }
  return false;
}

bool PlanWatcher::move_label(DamagedPlan& damaged, int64_t by) {
  for (PlannedSequence& sequence : damaged.plan.sequences) {
    const int64_t end = sequence.context_tokens + sequence.num_new_tokens();
    for (size_t i = 0; i < sequence.snapshots.size(); ++i) {
      const StateSnapshot& snapshot = sequence.snapshots[i];
      const int64_t moved = snapshot.tokens + by;
      if (snapshot.keep_hidden || moved <= sequence.context_tokens || moved > end) continue;
      auto& own =
          damaged.snapshots.emplace_back(sequence.snapshots.begin(), sequence.snapshots.end());
      own[i].tokens = moved;
      sequence.snapshots = own;
      return true;
    }
  }
  return false;
}

bool PlanWatcher::swap_pages(DamagedPlan& damaged) {
  const int64_t page_size = pool_sizes().page_size;
  for (PlannedSequence& sequence : damaged.plan.sequences) {
    if (sequence.context_tokens < 2 * page_size) continue;
    auto& own = damaged.pages.emplace_back(sequence.pages.begin(), sequence.pages.end());
    std::swap(own[0], own[1]);
    sequence.pages = own;
    return true;
  }
  return false;
}

// The first two that a window reads in full.
bool PlanWatcher::swap_window_pages(DamagedPlan& damaged) {
  const int64_t page_size = pool_sizes().page_size;
  for (PlannedSequence& sequence : damaged.plan.sequences) {
    const int64_t held = std::ssize(sequence.window_pages);
    const int64_t context = sequence.context_tokens / page_size - sequence.first_window_page;
    if (std::min(held, context) < 3 || pool_sizes().window_pages.window < 3 * page_size) continue;
    auto& own =
        damaged.pages.emplace_back(sequence.window_pages.begin(), sequence.window_pages.end());
    std::swap(own[1], own[2]);
    sequence.window_pages = own;
    return true;
  }
  return false;
}

// A slot that is reused too early: another sequence begins in it, or another state is saved there.
bool PlanWatcher::reuse_slot(DamagedPlan& damaged) {
  if (published_.empty()) return false;
  const int32_t slot =
      published_[static_cast<size_t>(dice_.between(0, std::ssize(published_) - 1))];
  BatchPlan& plan = damaged.plan;
  const auto uses = [&](const PlannedSequence& sequence) {
    return (!has_own_snapshot_slots() && sequence.state_slot == slot) ||
           std::any_of(sequence.snapshots.begin(), sequence.snapshots.end(),
                       [slot](const auto& snapshot) { return snapshot.slot == slot; });
  };
  const auto copies = [slot](const IdCopy& copy) { return copy.from == slot || copy.to == slot; };
  if (std::any_of(plan.sequences.begin(), plan.sequences.end(), uses) ||
      std::any_of(plan.restore_snapshots.begin(), plan.restore_snapshots.end(), copies) ||
      std::any_of(plan.save_snapshots.begin(), plan.save_snapshots.end(), copies)) {
    return false;
  }
  if (has_own_snapshot_slots()) {
    plan.save_snapshots.push_back({.from = plan.sequences[0].state_slot, .to = slot});
  } else {
    plan.zero_state_slots.push_back(slot);
  }
  return true;
}

}  // namespace heddle::oracle

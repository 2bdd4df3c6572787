// SPDX-License-Identifier: Apache-2.0
// HandPlan: a BatchPlan as a test writes it down. Everything about a sequence stands in one struct,
// by reference to vectors of the test, and flat() sends all of it anew in every step.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ops/pool_ids.h"
#include "request/batch_plan.h"

namespace heddle::testing {

// The pages of a table with a window, from its entry `first` on.
struct HandWindow {
  std::span<const int32_t> pages;
  int32_t first = 0;
};

// Fields without a comment are those of request::PlannedSequence and request::SlotStart.
struct HandSequence {
  int64_t sequence_id = 0;
  int32_t batch_slot = 0;
  std::span<const TokenId> new_tokens;
  bool feeds_drawn_token = false;
  bool takes_long_rope = false;
  std::span<const TokenId> drafts;
  std::span<const int32_t> draft_parents;
  int64_t context_tokens = 0;
  int64_t kv_tokens = 0;
  std::span<const int32_t> pages;
  std::vector<HandWindow> windows;
  int32_t state_slot = 0;
  std::span<const request::PlannedSnapshot> snapshots;
  request::PlanRange scored;
  TokenId next_token = 0;
  int32_t hidden_slot = 0;
  std::span<const TokenId> ending_tokens;
  bool sample = false;
  const SamplingParams* sampling = nullptr;
  uint64_t seed = 0;
  int32_t choice_index = 0;
  std::span<const TokenId> output_tokens;     // before the fed token, new tokens included
  std::span<const TokenId> forbidden_tokens;  // instead of the ending tokens: may not be drawn
  bool return_logprobs = false;
  int32_t top_logprobs = 0;
};

struct HandPlan {
  std::vector<HandSequence> sequences;
  // By MoveKind.
  std::vector<int32_t> unused_pages;
  std::vector<int32_t> unused_snapshot_slots;
  std::vector<ops::IdCopy> save_snapshots;
  std::vector<int32_t> unused_state_slots;
  std::vector<int32_t> zero_state_slots;
  std::vector<ops::IdCopy> restore_snapshots;
  std::vector<ops::IdCopy> copy_pages;  // of table 0

  [[nodiscard]] request::BatchPlan flat() const {
    request::BatchPlan plan;
    using request::MoveKind;
    const auto add_copies = [&plan](MoveKind kind, const std::vector<ops::IdCopy>& copies) {
      for (const auto& [from, to] : copies) plan.add_move({.kind = kind, .from = from, .to = to});
    };
    const auto release = [&plan](MoveKind kind, const std::vector<int32_t>& ids) {
      for (const int32_t id : ids) plan.add_move({.kind = kind, .from = id});
    };
    release(MoveKind::kReleasePage, unused_pages);
    release(MoveKind::kReleaseSnapshot, unused_snapshot_slots);
    add_copies(MoveKind::kSave, save_snapshots);
    release(MoveKind::kReleaseState, unused_state_slots);
    for (const int32_t slot : zero_state_slots)
      plan.add_move({.kind = MoveKind::kZero, .to = slot});
    add_copies(MoveKind::kRestore, restore_snapshots);
    add_copies(MoveKind::kCopyPage, copy_pages);
    for (const HandSequence& sequence : sequences) add(sequence, plan);
    return plan;
  }

 private:
  static void add(const HandSequence& from, request::BatchPlan& plan) {
    request::SlotStart start{.sequence_id = from.sequence_id,
                             .batch_slot = from.batch_slot,
                             .choice_index = from.choice_index,
                             .seed = from.seed,
                             .sampling = {},
                             .return_logprobs = from.return_logprobs,
                             .top_logprobs = from.top_logprobs};
    if (from.sampling != nullptr) start.sampling = *from.sampling;
    const bool forbids = !from.forbidden_tokens.empty();
    if (forbids) start.min_length = std::numeric_limits<int64_t>::max();
    start.ending_tokens = plan.add_tokens(forbids ? from.forbidden_tokens : from.ending_tokens);
    // Output among the new tokens is counted when it is computed.
    const int64_t known = from.context_tokens + std::ssize(from.new_tokens);
    start.num_prompt_tokens = known - std::ssize(from.output_tokens);
    const int64_t computed = from.context_tokens - start.num_prompt_tokens;
    if (computed > 0) {
      start.output_tokens =
          plan.add_tokens(from.output_tokens.first(static_cast<size_t>(computed)));
    }
    plan.starts.push_back(start);
    plan.page_updates.push_back(
        {.batch_slot = from.batch_slot, .pages = plan.add_pages(from.pages)});
    for (uint32_t i = 0; i < from.windows.size(); ++i) {
      plan.page_updates.push_back({.batch_slot = from.batch_slot,
                                   .table = 1 + i,
                                   .first = from.windows[i].first,
                                   .pages = plan.add_pages(from.windows[i].pages)});
    }
    plan.sequences.push_back({.sequence_id = from.sequence_id,
                              .batch_slot = from.batch_slot,
                              .new_tokens = plan.add_tokens(from.new_tokens),
                              .feeds_drawn_token = from.feeds_drawn_token,
                              .takes_long_rope = from.takes_long_rope,
                              .drafts = plan.add_tokens(from.drafts),
                              .draft_parents = plan.add_draft_parents(from.draft_parents),
                              .next_token = from.next_token,
                              .scored = from.scored,
                              .context_tokens = from.context_tokens,
                              .kv_tokens = from.kv_tokens,
                              .state_slot = from.state_slot,
                              .snapshots = plan.add_snapshots(from.snapshots),
                              .hidden_slot = from.hidden_slot,
                              .sample = from.sample});
  }
};

}  // namespace heddle::testing

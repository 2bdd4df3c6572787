// SPDX-License-Identifier: Apache-2.0
// ForwardBatch: a BatchPlan as the arrays that a forward pass reads. It is rebuilt for every step,
// in memory allocated once. That happens when the step begins, because the tokens that earlier
// steps drew are not known before.
//
// Threading: confined to one thread. Cost: build() is O(tokens + sequences * pages), without
// allocation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/pool_sizes.h"
#include "ops/forward_context.h"
#include "ops/pool_lists.h"
#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "runner/step/kept_drafts.h"
#include "runner/step/pools.h"
#include "runner/step/step_sequence.h"
#include "runner/step/token_source.h"
#include "speculative/draft_tree.h"

namespace heddle::runner {

enum class LogitRows {
  kSampled,  // the last row of every sequence with `sample` or a snapshot with `keep_hidden`, and
             // rows that score tokens
  kAll,      // all rows of the step
};

// Most pages of a sequence of `context_length` tokens.
[[nodiscard]] inline int64_t max_pages(int64_t context_length, int32_t page_size) {
  return (context_length + page_size - 1) / page_size;
}

class ForwardBatch {
 public:
  struct Sizes {
    int64_t max_tokens = 0;
    int64_t max_sequences = 0;
    int64_t max_pages_per_sequence = 0;
    int32_t page_size = 16;
    std::vector<cache::PageWindow> windows;  // windows of page tables 1 and up; PoolSizes::windows
    int64_t max_draft_rows = 0;              // most rows of sequences with drafts;
                                             // StepLimits::max_draft_rows
    int32_t first_draft_slot = 0;  // first of max_draft_rows state slots for drafts; 0: the model
                                   // has no states
    int64_t max_scored_rows = 0;   // most rows that score tokens; StepLimits::max_scored_rows
    int64_t num_hidden_slots = 0;  // snapshot slots 1 to this number can store hidden vectors; 0:
                                   // none can
  };

  explicit ForwardBatch(const Sizes& sizes);

  // Lays out a plan. `slots` must have been updated with it. `tokens` has the tokens drawn before;
  // null: no sequence feeds a drawn token. `kept` has drafts that the plan does not contain; null:
  // there are none. Error: kInvalidArgument for a plan that exceeds the sizes above, or has a
  // sequence with neither new tokens nor a hidden vector, with too few pages, too many drafts or
  // scored tokens, or with a hidden slot that does not exist. The batch must not be run then.
  Status build(const request::BatchPlan& plan, const request::BatchSlots& slots,
               LogitRows logit_rows, const TokenSource* tokens = nullptr,
               const KeptDrafts* kept = nullptr);

  // Whether the step has no rows, so that no forward pass is needed.
  [[nodiscard]] bool empty() const { return ids_.empty(); }

  [[nodiscard]] std::span<const int32_t> ids() const { return ids_; }

  [[nodiscard]] std::span<const int32_t> positions() const { return positions_; }

  // Rows whose logits are computed.
  [[nodiscard]] std::span<const int32_t> logit_rows() const { return logit_rows_; }

  // The sequences of the step, in the order of the plan.
  [[nodiscard]] std::span<const StepSequence> sequences() const { return sequences_; }

  // Hidden vectors to keep, copied from logit rows to snapshot slots.
  [[nodiscard]] std::span<const ops::IdCopy> kept_hidden() const { return kept_hidden_; }

  // Copies of states with which sequences with drafts begin, from working slots to draft slots.
  [[nodiscard]] std::span<const ops::IdCopy> draft_states() const { return draft_states_; }

  // Slots of the stored hidden vectors that the LM head reads.
  [[nodiscard]] std::span<const int32_t> hidden_slots() const { return hidden_slots_; }

  // For each sequence of context(): the slot of its adapter, -1 for none; empty: none has one.
  [[nodiscard]] std::span<const int32_t> adapters() const {
    return has_adapters_ ? std::span<const int32_t>(adapter_slots_) : std::span<const int32_t>();
  }

  // For each of hidden_slots(): the slot of its sequence's adapter, or -1.
  [[nodiscard]] std::span<const int32_t> hidden_adapters() const { return hidden_adapters_; }

  // The batch in the form that ops read. Valid until the next build().
  [[nodiscard]] ops::ForwardContext context(const Pools& pools) const;

 private:
  struct Sources {
    const request::BatchPlan& plan;
    LogitRows logit_rows;
    const TokenSource* tokens;
    const KeptDrafts* kept;
  };

  Status add(const Sources& sources, const request::PlannedSequence& sequence,
             const request::BatchSlot& slot);
  Status check_hidden(const Sources& sources, const request::PlannedSequence& sequence) const;
  static Status find_fed(const Sources& sources, StepSequence& sequence);
  Status add_rows(const request::PlannedSequence& sequence, std::span<const TokenId> new_tokens,
                  std::span<const TokenId> drafts, const request::BatchSlot& slot);
  Status add_tree(const request::PlannedSequence& sequence, std::span<const TokenId> drafts,
                  std::span<const int32_t> parents);
  Status add_pages(const request::PlannedSequence& sequence, const request::BatchSlot& slot);
  Status add_snapshots(const request::PlannedSequence& sequence,
                       std::span<const request::PlannedSnapshot> snapshots);
  static Status check_scored(const request::PlannedSequence& sequence);
  Status take_draft_rows(const request::PlannedSequence& sequence);
  void add_draft_states(const request::PlannedSequence& sequence);

  Sizes sizes_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> context_lens_;
  std::vector<int32_t> kv_lens_;
  std::vector<std::vector<int32_t>> page_tables_;
  std::vector<int32_t> state_slots_;
  std::vector<int32_t> logit_rows_;
  std::vector<int32_t> tree_starts_;
  std::vector<uint64_t> tree_masks_;
  bool has_trees_ = false;
  speculative::DraftTree tree_;  // scratch: the tree of the current sequence
  std::vector<ops::StateSnapshot> snapshots_;
  std::vector<StepSequence> sequences_;
  std::vector<ops::IdCopy> kept_hidden_;
  std::vector<int32_t> hidden_slots_;
  std::vector<int32_t> hidden_adapters_;
  std::vector<int32_t> adapter_slots_;
  bool has_adapters_ = false;  // whether a computed sequence has an adapter
  std::vector<ops::IdCopy> draft_states_;
  int64_t draft_rows_ = 0;  // rows of sequences with drafts so far
};

}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
// ForwardBatch: a BatchPlan as the arrays a forward pass reads. Built anew every step in memory
// that was sized once, when the step begins: only then are the tokens known that earlier steps
// drew.
//
// Threading: confined. Cost: build() is O(tokens + sequences * pages), without allocation.
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
#include "sampling/sampler.h"
#include "speculative/draft_tree.h"

namespace heddle::runner {

enum class LogitRows {
  kSampled,  // the last row of every sequence with `sample` or a snapshot with `keep_hidden`, and
             // those that score tokens
  kAll,
};

// The part that a sequence of the plan takes in the step.
struct BatchedSequence {
  enum class Part : uint8_t {
    kComputed,  // its new tokens are rows of the forward pass
    kHidden,    // only the LM head runs, on a vector kept earlier
    kSkipped,   // it had ended
  };

  Part part = Part::kComputed;

  // kComputed: index of the row of its last new token among the logits, -1 if they are not wanted;
  // those of its drafts follow. kHidden: index among hidden_slots(), -1 likewise.
  int32_t logit_row = -1;

  // Index among the logits of the first row that scores a token; the others follow.
  int32_t scored_row = -1;

  // With drafts, in a model with states: slots of the working format that are no sequence's. Its
  // state advances in the first one, from a copy of the working slot; the others get it after the
  // last new token and after each draft but the last. 0: it advances in its working slot.
  // In a tree (below) the first slot is left as it is after the last new token, and the others get
  // the state after each draft.
  int32_t draft_slot = 0;

  bool has_tree = false;  // its drafts branch

  // The slot with the state after so many drafts of a chain, or after node `index` of a tree.
  [[nodiscard]] int32_t state_after(int32_t index, int32_t num_drafts) const {
    if (has_tree) return draft_slot + index;
    return draft_slot + (index == num_drafts ? 0 : 1 + index);
  }

  TokenId fed_token = sampling::kNoToken;  // what feeds_drawn_token stood for

  // Row of logits of the step before, where what feeds_drawn_token stands for is known to the
  // device alone: that it draws from. -1: the host knew.
  int32_t fed_from = -1;
};

// A vector the LM head reads that is to be kept with a state slot.
struct KeptHidden {
  int32_t logit_row = 0;
  int32_t slot = 0;
};

class ForwardBatch {
 public:
  struct Sizes {
    int64_t max_tokens = 0;
    int64_t max_sequences = 0;
    int64_t max_pages_per_sequence = 0;
    int32_t page_size = 16;
    cache::WindowPoolSizes window_pages;
    int64_t max_draft_rows = 0;    // PoolSizes::max_draft_rows
    int32_t first_draft_slot = 0;  // of as many state slots; 0: the model has no states
  };

  explicit ForwardBatch(const Sizes& sizes);

  // `slots` has taken the plan over. `drawn_tokens` by batch slot: the token drawn last, kNoToken
  // where the draw failed; empty where no sequence feeds on one. `rows_in_flight` likewise: the row
  // of logits that a step which is not done yet draws it from; -1, or empty: the token is known.
  // `kept` has drafts that the plan does not; null: there are none.
  // Error: kInvalidArgument for a plan that exceeds the sizes above, has a sequence with neither
  // new tokens nor a hidden vector, or with too few pages, or more drafts than the sizes have room
  // for. The batch is not to be run then.
  Status build(const request::BatchPlan& plan, const request::BatchSlots& slots,
               LogitRows logit_rows, std::span<const TokenId> drawn_tokens = {},
               std::span<const int32_t> rows_in_flight = {}, const KeptDrafts* kept = nullptr);

  // No rows: nothing is to be computed.
  [[nodiscard]] bool empty() const { return ids_.empty(); }

  [[nodiscard]] std::span<const int32_t> ids() const { return ids_; }

  [[nodiscard]] std::span<const int32_t> positions() const { return positions_; }

  // Rows whose logits are wanted.
  [[nodiscard]] std::span<const int32_t> logit_rows() const { return logit_rows_; }

  // The first row of the b-th sequence that is computed.
  [[nodiscard]] int32_t row_of(int32_t b) const { return query_start_[static_cast<size_t>(b)]; }

  // In the order of the plan.
  [[nodiscard]] std::span<const BatchedSequence> sequences() const { return sequences_; }

  [[nodiscard]] std::span<const KeptHidden> kept_hidden() const { return kept_hidden_; }

  // Copies of states that sequences with drafts begin with, from working slots to draft slots.
  [[nodiscard]] std::span<const ops::IdCopy> draft_states() const { return draft_states_; }

  // The slots whose hidden vectors the LM head is to read.
  [[nodiscard]] std::span<const int32_t> hidden_slots() const { return hidden_slots_; }

  // Valid until the next build().
  [[nodiscard]] ops::ForwardContext context(const Pools& pools) const;

 private:
  Status add(const request::BatchPlan& plan, const request::PlannedSequence& sequence,
             const request::BatchSlot& slot, LogitRows logit_rows,
             std::span<const TokenId> drawn_tokens, std::span<const int32_t> rows_in_flight,
             const KeptDrafts* kept);
  Status add_rows(const request::PlannedSequence& sequence, std::span<const TokenId> new_tokens,
                  std::span<const TokenId> drafts, const request::BatchSlot& slot);
  Status add_tree(const request::PlannedSequence& sequence, std::span<const TokenId> drafts,
                  std::span<const int32_t> parents);
  Status add_window_pages(const request::PlannedSequence& sequence, const request::PageList& pages,
                          int64_t num_pages);
  Status add_snapshots(const request::PlannedSequence& sequence,
                       std::span<const request::StateSnapshot> snapshots);
  static Status check_scored(const request::PlannedSequence& sequence);
  Status take_draft_rows(const request::PlannedSequence& sequence);
  void add_draft_states(const request::PlannedSequence& sequence);

  Sizes sizes_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> context_lens_;
  std::vector<int32_t> kv_lens_;
  std::vector<int32_t> page_table_;
  std::vector<int32_t> window_page_table_;  // empty without window pages
  std::vector<int32_t> state_slots_;
  std::vector<int32_t> logit_rows_;
  std::vector<int32_t> tree_starts_;
  std::vector<uint64_t> tree_masks_;
  bool has_trees_ = false;
  speculative::DraftTree tree_;  // of the sequence at work
  std::vector<ops::StateSnapshot> snapshots_;
  std::vector<BatchedSequence> sequences_;
  std::vector<KeptHidden> kept_hidden_;
  std::vector<int32_t> hidden_slots_;
  std::vector<ops::IdCopy> draft_states_;
  int64_t draft_rows_ = 0;  // of sequences with drafts, so far
};

}  // namespace heddle::runner

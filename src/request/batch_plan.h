// SPDX-License-Identifier: Apache-2.0
// BatchPlan: the work of one step, decided by the scheduler and computed by the runner.
//
// A step may mix prefill (many new tokens of a sequence) and decode (one). A sequence writes only
// pages and slots that are its own; pages before the first row it writes may be shared with others.
// The runner only reads the ids. Views point into the scheduler's own storage and live until the
// step's output has been processed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>

namespace heddle::request {

// A copy of the recurrent state, taken when exactly `tokens` tokens of the sequence have
// been processed; `tokens` lies in (context_tokens, context_tokens + new tokens]. `slot` is a
// snapshot slot: a state slot like any other, or one with ids of its own
// (PoolSizes::num_snapshot_slots).
struct StateSnapshot {
  int64_t tokens = 0;
  int32_t slot = 0;

  // Only where `tokens` is the end of the step's tokens: the hidden vector that the LM head reads
  // is kept beside the state, so that the next token can be drawn again without computing anything.
  bool keep_hidden = false;
};

struct PlannedSequence {
  int64_t sequence_id = 0;  // echoed in the output
  int32_t batch_slot = 0;   // 0 to max_step_sequences - 1, the sequence's own while it runs: where
                            // the device keeps the token it drew last

  // Tokens to compute in this step. One more follows them with `feeds_drawn_token`: the token that
  // an earlier step drew for this batch slot, which the host may not have seen yet. No token at all
  // only with `hidden_slot`.
  std::span<const TokenId> new_tokens;
  bool feeds_drawn_token = false;

  int64_t context_tokens = 0;      // tokens already in KV pages and state
  int64_t kv_tokens = 0;           // KV rows before this one exist and are not written again; at
                                   // least context_tokens, also beyond it where pages are shared
  std::span<const int32_t> pages;  // page of token t is pages[t / page_size]; covers the new tokens

  // Of the layers whose window slides, where they have pages of their own
  // (PoolSizes::window_pages): page of token t is window_pages[t / page_size - first_window_page].
  // They begin with the page of the first token that the first new one sees, and cover the new
  // tokens. All new rows are written.
  std::span<const int32_t> window_pages;
  int64_t first_window_page = 0;

  int32_t state_slot = 0;  // working slot, advanced in place; 0 for models without state
  std::span<const StateSnapshot> snapshots;

  // Not 0: the logits come from the hidden vector kept with this snapshot slot; nothing is
  // computed.
  int32_t hidden_slot = 0;

  // Sorted. With feeds_drawn_token: if the drawn token is one of these, or the draw failed, the
  // sequence ended there. It is then left out of the step, its state, pages and batch slot stay as
  // they are, and its output says `skipped`.
  std::span<const TokenId> ending_tokens;

  // Sampling; with `sample` false (a prefill chunk that is not the last) the rest is unused.
  bool sample = false;
  const SamplingParams* sampling = nullptr;
  uint64_t seed = 0;                          // resolved; part of the draw
  int32_t choice_index = 0;                   // part of the draw
  std::span<const TokenId> output_tokens;     // drawn so far, for penalties; with feeds_drawn_token
                                              // the fed token follows them
  std::span<const TokenId> forbidden_tokens;  // may not be drawn in this step (min_new_tokens)
  bool return_logprobs = false;
  int32_t top_logprobs = 0;

  [[nodiscard]] int64_t num_new_tokens() const {
    return static_cast<int64_t>(new_tokens.size()) + (feeds_drawn_token ? 1 : 0);
  }
};

struct IdCopy {
  int32_t from = 0;
  int32_t to = 0;
};

struct BatchPlan {
  std::vector<PlannedSequence> sequences;

  // Done before the step's first layer, in this order.
  std::vector<int32_t> unused_pages;  // their memory may go back to the system: the next use
  std::vector<int32_t> unused_snapshot_slots;  // finds anything in them
  std::vector<IdCopy> save_snapshots;       // working slot to snapshot slot: where a sequence ended
  std::vector<int32_t> unused_state_slots;  // as above; may be among those just saved
  std::vector<int32_t> zero_state_slots;    // a sequence without context starts in them
  std::vector<IdCopy> restore_snapshots;    // snapshot slot to working slot: a sequence goes on
  std::vector<IdCopy> copy_pages;           // a sequence resumes inside a page
  std::vector<IdCopy> copy_window_pages;    // likewise

  [[nodiscard]] bool empty() const { return sequences.empty(); }

  void clear() {
    sequences.clear();
    unused_pages.clear();
    unused_snapshot_slots.clear();
    save_snapshots.clear();
    unused_state_slots.clear();
    zero_state_slots.clear();
    restore_snapshots.clear();
    copy_pages.clear();
    copy_window_pages.clear();
  }

  [[nodiscard]] int64_t num_new_tokens() const {
    int64_t count = 0;
    for (const PlannedSequence& sequence : sequences) count += sequence.num_new_tokens();
    return count;
  }
};

}  // namespace heddle::request

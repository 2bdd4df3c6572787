// SPDX-License-Identifier: Apache-2.0
// BatchPlan: what one step computes, decided by the scheduler, carried out by the runner.
//
// A step may mix prefill (many new tokens of a sequence) and decode (one). Every sequence of the
// plan owns its KV pages and its state slot; the runner only reads the ids. Views point into the
// scheduler's own storage and live until the step's output has been processed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>

namespace heddle::request {

// A frozen copy of the recurrent state, taken when exactly `tokens` tokens of the sequence have
// been processed; `tokens` lies in (context_tokens, context_tokens + new tokens].
struct StateCheckpoint {
  int64_t tokens = 0;
  int32_t slot = 0;
};

struct PlannedSequence {
  int64_t sequence_id = 0;              // echoed in the output
  std::span<const TokenId> new_tokens;  // tokens to compute in this step, at least one
  int64_t context_tokens = 0;           // tokens already in KV pages and state
  std::span<const int32_t> pages;  // page of token t is pages[t / page_size]; covers the new tokens
  int32_t state_slot = 0;          // working slot, advanced in place; 0 for models without state
  std::span<const StateCheckpoint> checkpoints;

  // Sampling; with `sample` false (a prefill chunk that is not the last) the rest is unused.
  bool sample = false;
  const SamplingParams* sampling = nullptr;
  uint64_t seed = 0;                          // resolved; part of the draw
  int32_t choice_index = 0;                   // part of the draw
  std::span<const TokenId> output_tokens;     // drawn so far, for penalties
  std::span<const TokenId> forbidden_tokens;  // may not be drawn in this step (min_new_tokens)
  bool return_logprobs = false;
  int32_t top_logprobs = 0;
};

struct BatchPlan {
  std::vector<PlannedSequence> sequences;

  // Slots to zero before the step, because a sequence without context starts in them.
  std::vector<int32_t> zero_state_slots;

  [[nodiscard]] int64_t num_new_tokens() const {
    int64_t count = 0;
    for (const PlannedSequence& sequence : sequences) {
      count += static_cast<int64_t>(sequence.new_tokens.size());
    }
    return count;
  }
};

}  // namespace heddle::request

// SPDX-License-Identifier: Apache-2.0
// StepOutput: the result of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>

namespace heddle::request {

struct SampledToken {
  int64_t sequence_id = 0;
  TokenId token = 0;
  bool skipped = false;  // the sequence had ended before the step (PlannedSequence::new_tokens), so
                         // no token was drawn
  TokenLogprob logprob;  // filled in if the sequence asked for log probabilities
  Status error;          // for example all logits masked or not finite; `token` is meaningless then
};

// A token that the runner predicts after the sequence's last draw.
struct MadeDraft {
  int64_t sequence_id = 0;
  TokenId token = 0;    // the draft, or kKeptDraft if the runner keeps it to itself
  int32_t parent = -1;  // index among the sequence's made drafts; -1: follows the drawn token
};

// A prompt token with its log probability, given the tokens before it.
struct ScoredToken {
  int64_t sequence_id = 0;
  TokenLogprob logprob;
  Status error;  // a logit is not finite; `logprob` is meaningless then
};

struct StepOutput {
  // The drawn tokens of every sequence with `sample`, in plan order: one token, and one more for
  // each accepted draft. Only the last token of a sequence can have an error, and a skipped one is
  // the only one of its sequence.
  std::vector<SampledToken> tokens;

  // The drafts made for sequences with wanted_drafts, in plan order, a parent before its children.
  // A sequence may have none.
  std::vector<MadeDraft> drafts;

  // For every sequence with `scored` rows, in plan order: the token after each of these rows.
  std::vector<ScoredToken> scored;

  // The step also prepared later steps of its shape, so its time is not typical.
  bool warms_up = false;

  // Empties the output for another step and keeps its memory.
  void clear() {
    tokens.clear();
    drafts.clear();
    scored.clear();
  }
};

// Splits an output by sequence: next() returns the span of each sequence, asked for in plan order.
// Cost: O(tokens) for all of them.
template <typename Token>
class SpanReader {
 public:
  // `Token` is SampledToken, MadeDraft or ScoredToken, possibly const.
  explicit SpanReader(std::span<Token> tokens) : rest_(tokens) {}

  // The tokens of this sequence; empty if the next token belongs to another one.
  [[nodiscard]] std::span<Token> next(int64_t sequence_id) {
    size_t count = 0;
    while (count < rest_.size() && rest_[count].sequence_id == sequence_id) ++count;
    const std::span<Token> span = rest_.first(count);
    rest_ = rest_.subspan(count);
    return span;
  }

  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::span<Token> rest_;
};

}  // namespace heddle::request

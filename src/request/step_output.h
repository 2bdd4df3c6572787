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
  bool skipped = false;  // had ended before the step (PlannedSequence::ending_tokens); no token
  TokenLogprob logprob;  // filled if the sequence asked for it
  Status error;          // for example all logits masked or not finite; `token` is meaningless then
};

// A token that the runner predicts after the sequence's last draw.
struct MadeDraft {
  int64_t sequence_id = 0;
  TokenId token = 0;    // or kKeptDraft
  int32_t parent = -1;  // index among the sequence's made drafts; -1: follows the drawn token
};

// A prompt token with its log probability given the tokens before it.
struct ScoredToken {
  int64_t sequence_id = 0;
  TokenLogprob logprob;
  Status error;  // a logit is not finite; `logprob` is meaningless then
};

struct StepOutput {
  // For every sequence of the plan with `sample`, in plan order, the span of tokens it drew: one,
  // and one more for each draft that was accepted. Only the last of a span can have an error, only
  // the single one of a span can be skipped.
  std::vector<SampledToken> tokens;

  // For sequences with wanted_drafts, in plan order, the drafts made, a parent before its children;
  // of some there are none.
  std::vector<MadeDraft> drafts;

  // For every sequence with `scored` rows, in plan order: the token after each.
  std::vector<ScoredToken> scored;

  // Includes preparation for later steps of its shape, so that its time is not typical.
  bool warms_up = false;

  // Ready for another step, with its memory.
  void clear() {
    tokens.clear();
    drafts.clear();
    scored.clear();
  }
};

// Takes an output apart: the span of each sequence that has one, asked for in plan order.
// Cost: O(tokens) for all of them.
template <typename Token>
class SpanReader {
 public:
  // `Token` is SampledToken, MadeDraft or ScoredToken, const or not.
  explicit SpanReader(std::span<Token> tokens) : rest_(tokens) {}

  // Empty when the next token is not the sequence's.
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

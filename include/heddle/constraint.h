// SPDX-License-Identifier: Apache-2.0
// Constraint: restricts an answer to certain texts, token by token. Before each draw the engine
// asks it which tokens may follow. The interface does not say how the constraint computes them.
//
// An end token ends an answer only where the constraint is complete and `min_new_tokens` allows it;
// the engine decides that (request/sequence.h). Elsewhere an end token counts as text if the
// constraint allows its text, and is masked if not.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

namespace heddle {

// The progress of one answer through its constraint.
//
// Threading: thread-compatible.
class ConstraintState {
 public:
  virtual ~ConstraintState() = default;

  // Accepts a token. Returns false and changes nothing if it may not follow here. One of the
  // constraint's end tokens ends the answer where it may end.
  [[nodiscard]] virtual bool accept(TokenId token) = 0;

  // Like accept(), but an end token counts as text, too.
  [[nodiscard]] virtual bool accept_text(TokenId token) { return accept(token); }

  // Undoes the last `count` tokens; at most kMaxRollback, and no more than were accepted (checked).
  virtual void roll_back(int64_t count) = 0;

  // Whether the answer may end here.
  [[nodiscard]] virtual bool is_complete() const = 0;

  // Whether the answer must end here.
  [[nodiscard]] virtual bool is_over() const = 0;

  // Bit i % 32 of word i / 32: whether token i may follow; words beyond the vocabulary become zero.
  // End tokens are set exactly where the answer may end; after one was accepted, no others are. At
  // least one bit is set.
  // Error: kInvalidArgument if the answer is too ambiguous to follow, or if no token of the
  // vocabulary can continue it.
  [[nodiscard]] virtual Status fill_mask(std::span<uint32_t> mask) = 0;

  // The same for tokens as text: end tokens are only set if accept_text() accepts them. No bit is
  // set if is_over().
  [[nodiscard]] virtual Status fill_text_mask(std::span<uint32_t> mask) { return fill_mask(mask); }

  // If only one text may follow, appends at most `most` tokens of its usual spelling, each of which
  // accept() accepts in turn; nothing if there is a choice. Does not change the state. A step may
  // compute these tokens together (scheduler/stream_drafts.h); a mask still decides the draws.
  virtual void forced_tokens(int64_t most, std::vector<TokenId>& tokens) {
    (void)most;
    (void)tokens;
  }

  static constexpr int64_t kMaxRollback = 64;
};

// Threading: immutable; thread-safe.
class Constraint {
 public:
  virtual ~Constraint() = default;

  // Size of the vocabulary; masks need a bit per token.
  [[nodiscard]] virtual int64_t vocab_size() const = 0;

  // The state before the first token of an answer.
  [[nodiscard]] virtual std::unique_ptr<ConstraintState> start() const = 0;
};

}  // namespace heddle

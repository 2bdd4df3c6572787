// SPDX-License-Identifier: Apache-2.0
// Constraint: restricts an answer to texts of some form, token by token. The engine asks before
// each draw which tokens may follow; how that is found out is not its concern.
//
// A token that ends answers ends one only where its form may end (and `min_new_tokens` allows it):
// the engine decides that (request/sequence.h). Elsewhere such a token is text, if it has one that
// the form allows, or it is masked.
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

  // Takes a token over. False, and nothing changes, when it may not follow here. One of the form's
  // ending tokens ends the answer where it may end.
  [[nodiscard]] virtual bool accept(TokenId token) = 0;

  // The same for a token that is text wherever it stands.
  [[nodiscard]] virtual bool accept_text(TokenId token) { return accept(token); }

  // Takes the last `count` tokens back; at most kMaxRollback, and no more than were accepted
  // (checked).
  virtual void roll_back(int64_t count) = 0;

  // The answer may end here.
  [[nodiscard]] virtual bool is_complete() const = 0;

  // It must: nothing else may follow.
  [[nodiscard]] virtual bool is_over() const = 0;

  // Bit i % 32 of word i / 32 says whether token i may follow; words beyond the vocabulary become
  // zero. Ids that end a text are among them exactly where it may end; once one was accepted, no
  // others are. At least one bit is set.
  // Error: kInvalidArgument when there are too many ways to read the answer to follow them all, or
  // none of the vocabulary's tokens goes on with it.
  [[nodiscard]] virtual Status fill_mask(std::span<uint32_t> mask) = 0;

  // The same for tokens as text: ids that end a text are only among them if accept_text() takes
  // them. No bit is set where is_over().
  [[nodiscard]] virtual Status fill_text_mask(std::span<uint32_t> mask) { return fill_mask(mask); }

  // Appends at most `most` tokens that most likely follow because only one text may: the tokens
  // that this text is usually spelled with, of which accept() takes one after the other. Nothing
  // where there is a choice. The state stays as it is. A step of the model may then compute them
  // together (scheduler/stream_drafts.h); a mask still decides what is drawn.
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

  // Tokens of the vocabulary; masks need a bit for each.
  [[nodiscard]] virtual int64_t vocab_size() const = 0;

  // The state before the first token of an answer.
  [[nodiscard]] virtual std::unique_ptr<ConstraintState> start() const = 0;
};

}  // namespace heddle

// SPDX-License-Identifier: Apache-2.0
// Drafter: guesses how texts continue. A step computes the guesses together with the next token and
// keeps those that the model draws as well (PlannedSequence::drafts). A guess never changes a text,
// only how many steps it takes.
//
//   [observe() -> propose()]* -> observe() -> forget()
//
// Threading: confined to the engine thread. Cost: it runs for every stream in every step, so it
// should take microseconds.
#pragma once

#include <cstdint>
#include <memory>

#include <heddle/options.h>

#include "request/sequence.h"
#include "speculative/draft_tree.h"

namespace heddle::speculative {

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Called for a new sequence, and whenever the text of a sequence may have grown.
  virtual void observe(const request::Sequence& sequence) = 0;

  // Fills the empty `drafts` with at most `most` tokens that may follow all tokens of the sequence;
  // often with none. observe() must have seen these tokens.
  virtual void propose(const request::Sequence& sequence, int64_t most, Drafts& drafts) = 0;

  // Called when the sequence no longer runs. It may come back; observe() then sees all of its
  // tokens again.
  virtual void forget(const request::Sequence& sequence) = 0;
};

// The drafter of the chosen algorithm. Null: nothing drafts, or the runner makes the drafts.
[[nodiscard]] std::unique_ptr<Drafter> make_drafter(const SpeculativeOptions& options);

}  // namespace heddle::speculative

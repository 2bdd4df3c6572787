// SPDX-License-Identifier: Apache-2.0
// Drafter: guesses how texts go on. A step computes the guesses beside the next token and keeps
// those that the model draws as well (PlannedSequence::drafts): a guess never changes a text, only
// how many steps it takes.
//
//   [observe() -> propose()]* -> observe() -> forget()
//
// Threading: confined to the engine thread. Cost: it is asked for every stream in every step, so
// that microseconds count.
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

  // The sequence has these tokens now: it is new, or its text has grown at its end, or neither.
  virtual void observe(const request::Sequence& sequence) = 0;

  // Fills `drafts`, which are empty, with what may follow all tokens of the sequence: at most
  // `most` tokens, often none. observe() has seen these tokens.
  virtual void propose(const request::Sequence& sequence, int64_t most, Drafts& drafts) = 0;

  // The sequence does not run any more. It may come back; observe() then sees all of it again.
  virtual void forget(const request::Sequence& sequence) = 0;
};

// The drafter of the algorithm chosen. Null: there is none, or the runner makes the drafts.
[[nodiscard]] std::unique_ptr<Drafter> make_drafter(const SpeculativeOptions& options);

}  // namespace heddle::speculative

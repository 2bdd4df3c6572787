// SPDX-License-Identifier: Apache-2.0
// Subset construction: makes the paths from one state of an Nfa deterministic, for bytes and for
// calls alike: a called rule counts as a letter. Rules of `nullable` may also be skipped.
//
// Threading: a free function.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/status.h>

#include "grammar/nfa.h"

namespace heddle::grammar {

struct DeterministicState {
  std::vector<Nfa::ByteMove> byte_moves;  // moves on ranges of bytes, sorted and without overlap
  std::vector<Nfa::Call> calls;           // at most one per rule
  bool is_final = false;
};

// State 0 of the result is the start. Adds the number of examined states to `work`.
// Error: kInvalidArgument if there are more than `max_states` states or `work` exceeds
// kMaxSubsetWork.
Result<std::vector<DeterministicState>> determinise(const Nfa& nfa, NfaState begin, NfaState end,
                                                    const std::vector<bool>& nullable,
                                                    size_t max_states, size_t& work);

}  // namespace heddle::grammar

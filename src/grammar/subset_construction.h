// SPDX-License-Identifier: Apache-2.0
// Subset construction: the ways from one state of an Nfa become deterministic, for bytes and for
// calls alike; a rule is then a letter. Rules of `nullable` may also be passed over.
//
// Threading: a free function.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/status.h>

#include "grammar/nfa.h"

namespace heddle::grammar {

struct DeterministicState {
  std::vector<Nfa::ByteMove> byte_moves;  // sorted, without overlap
  std::vector<Nfa::Call> calls;           // one for each rule
  bool is_final = false;
};

// The start is state 0. Adds what it looked at to `work`.
// Error: kInvalidArgument when states go beyond `max_states` or `work` beyond kMaxSubsetWork.
Result<std::vector<DeterministicState>> determinise(const Nfa& nfa, NfaState begin, NfaState end,
                                                    const std::vector<bool>& nullable,
                                                    size_t max_states, size_t& work);

}  // namespace heddle::grammar

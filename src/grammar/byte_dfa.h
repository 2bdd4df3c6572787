// SPDX-License-Identifier: Apache-2.0
// ByteDfa: a regular set of byte strings that can be intersected and subtracted. Uses: a pattern
// combined with a length, or all keys except the known ones.
//
// Threading: a value. Invariant: state 0 is the start; a final state can be reached from every
// state; the empty set has no states; edges of a state are sorted and do not overlap.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "grammar/nfa.h"

namespace heddle::grammar {

// The most states of one determinisation: a regex such as (a|b)*a(a|b){30} has 2^30 states.
inline constexpr size_t kMaxDfaStates = size_t{1} << 17;
// total size of the subsets of states that one determinisation may examine
inline constexpr size_t kMaxSubsetWork = size_t{1} << 25;

class ByteDfa {
 public:
  struct Edge {
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t target = 0;
  };

  struct State {
    std::vector<Edge> edges;
    bool is_final = false;
  };

  // The strings on the paths from `begin` to `end`, which must not contain calls.
  // Error: kInvalidArgument above the limits, or the error of `nfa`.
  static Result<ByteDfa> from_nfa(const Nfa& nfa, NfaState begin, NfaState end,
                                  size_t max_states = kMaxDfaStates);

  // The strings in both sets; the second function: the strings in this set that are not in `other`.
  // Error: kInvalidArgument above kMaxDfaStates.
  [[nodiscard]] Result<ByteDfa> intersect(const ByteDfa& other) const;
  [[nodiscard]] Result<ByteDfa> subtract(const ByteDfa& other) const;

  [[nodiscard]] bool is_empty() const { return states_.empty(); }

  [[nodiscard]] bool contains(std::string_view text) const;

  [[nodiscard]] const std::vector<State>& states() const { return states_; }

 private:
  [[nodiscard]] Result<ByteDfa> product(const ByteDfa& other, bool subtract) const;
  void trim();

  std::vector<State> states_;
};

}  // namespace heddle::grammar

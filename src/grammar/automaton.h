// SPDX-License-Identifier: Apache-2.0
// Automaton: a compiled grammar. Each rule is a deterministic automaton over bytes that may call
// others; a stack of return states (stack_machine.h) makes it a pushdown automaton.
//
// Threading: immutable; thread-safe.
// Invariants: from every state the rule's end can be reached with a stack of at most height()
// further frames; no rule calls itself before it reads a byte; states and rules are bounded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "grammar/nfa.h"

namespace heddle::grammar {

using StateId = uint32_t;

class Automaton {
 public:
  struct ByteEdge {
    uint8_t first = 0;
    uint8_t last = 0;  // included
    StateId target = 0;
  };

  struct CallEdge {
    StateId begin = 0;   // of the rule that is called
    StateId target = 0;  // where the caller goes on
  };

  // Rules that call rules before any byte is read, one inside the other.
  static constexpr int kMaxCallChain = 31;
  // Of the stack: bounds how deep JSON nests.
  static constexpr int32_t kMaxDepth = 2048;

  // Error: kInvalidArgument: the first error of `nfa`, a rule that calls itself before it reads
  // anything, chains of calls beyond kMaxCallChain, too many states, or nothing that matches.
  static Result<Automaton> build(const Nfa& nfa, RuleId root);

  [[nodiscard]] StateId start() const { return start_; }

  [[nodiscard]] size_t num_states() const { return states_.size(); }

  [[nodiscard]] bool is_final(StateId state) const { return states_[state].is_final; }

  [[nodiscard]] std::span<const ByteEdge> byte_edges(StateId state) const {
    const State& s = states_[state];
    return std::span(byte_edges_).subspan(s.first_byte_edge, s.num_byte_edges);
  }

  [[nodiscard]] std::span<const CallEdge> call_edges(StateId state) const {
    const State& s = states_[state];
    return std::span(call_edges_).subspan(s.first_call_edge, s.num_call_edges);
  }

  // A state with edges of bytes only: entering it changes no stack.
  [[nodiscard]] bool is_plain(StateId state) const {
    return !states_[state].is_final && states_[state].num_call_edges == 0;
  }

  // Frames that the shortest way to the end of the rule needs.
  [[nodiscard]] int32_t height(StateId state) const { return states_[state].height; }

  // Rules that may open before one byte is read.
  [[nodiscard]] int32_t call_chain() const { return call_chain_; }

  // The same for states that treat the next `depth` bytes alike, of any automaton (up to
  // collisions of 64 bits), as long as the frame of the state is not left; calls that the state
  // itself makes are not part of it. Cost: O(depth * edges).
  [[nodiscard]] std::vector<uint64_t> signatures(int depth) const;

 private:
  friend class AutomatonBuilder;

  struct State {
    uint32_t first_byte_edge = 0;
    uint32_t first_call_edge = 0;
    uint16_t num_byte_edges = 0;
    bool is_final = false;
    uint32_t num_call_edges = 0;
    int32_t height = 0;
  };

  StateId start_ = 0;
  int32_t call_chain_ = 0;
  std::vector<State> states_;
  std::vector<ByteEdge> byte_edges_;
  std::vector<CallEdge> call_edges_;
  std::vector<StateId> callees_;  // begin states of rules, called ones before their callers
};

}  // namespace heddle::grammar

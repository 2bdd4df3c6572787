// SPDX-License-Identifier: Apache-2.0
// Automaton: a compiled grammar. Each rule is a deterministic automaton over bytes that may call
// other rules; a stack of return states (stack_machine.h) makes it a pushdown automaton. A counting
// rule (nfa.h) has a count in addition to its state.
//
// Threading: immutable; thread-safe.
// Invariants: from every state the rule's end can be reached with at most height() further stack
// frames and with at least least_count() more counting moves; no rule calls itself before it reads
// a byte; the numbers of states and rules are bounded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "grammar/count_windows.h"
#include "grammar/nfa.h"

namespace heddle::grammar {

using StateId = uint32_t;

class Automaton {
 public:
  struct ByteEdge {
    uint8_t first = 0;
    uint8_t last = 0;  // last byte of the range, included
    bool counts = false;
    StateId target = 0;
  };

  struct CallEdge {
    StateId begin = 0;   // first state of the called rule
    StateId target = 0;  // state after the call returns
  };

  // Limit of nested calls before a byte is read.
  static constexpr int kMaxCallChain = 31;
  // Limit of the stack's depth, which limits how deeply JSON can nest.
  static constexpr int32_t kMaxDepth = 2048;

  // Builds the automaton of the rule `root`. Error: kInvalidArgument: the first error of `nfa`, a
  // rule that calls itself before it reads a byte, chains of calls beyond kMaxCallChain, too many
  // states, or a grammar that matches nothing.
  static Result<Automaton> build(const Nfa& nfa, RuleId root);

  [[nodiscard]] StateId start() const { return start_; }

  [[nodiscard]] size_t num_states() const { return states_.size(); }

  // Total size of all CountWindows in bytes.
  [[nodiscard]] size_t num_window_bytes() const;

  [[nodiscard]] bool is_final(StateId state) const { return states_[state].is_final; }

  [[nodiscard]] std::span<const ByteEdge> byte_edges(StateId state) const {
    const State& s = states_[state];
    return std::span(byte_edges_).subspan(s.first_byte_edge, s.num_byte_edges);
  }

  [[nodiscard]] std::span<const CallEdge> call_edges(StateId state) const {
    const State& s = states_[state];
    return std::span(call_edges_).subspan(s.first_call_edge, s.num_call_edges);
  }

  // Whether the state has only byte edges: entering it does not change the stack.
  [[nodiscard]] bool is_plain(StateId state) const {
    return !states_[state].is_final && states_[state].num_call_edges == 0;
  }

  // Whether the state belongs to a rule that counts.
  [[nodiscard]] bool is_counted(StateId state) const { return states_[state].counter != kNone; }

  // Whether an edge to `target`, in the same rule, is allowed if the count is then `count`.
  [[nodiscard]] bool fits(StateId target, uint32_t count) const {
    const State& s = states_[target];
    if (s.counter == kNone) return true;
    const Counter& counter = counters_[s.counter];
    if (count < counter.min && counter.windows != kNone) {
      return windows_[counter.windows].may_end(target - counter.first_state, counter.min - count);
    }
    return s.least_count <= counter.max && count <= counter.max - s.least_count;
  }

  // Whether the rule may end in this state.
  [[nodiscard]] bool ends(StateId state, uint32_t count) const {
    const State& s = states_[state];
    return s.is_final && (s.counter == kNone || count >= counters_[s.counter].min);
  }

  // The smallest count at which the rule may end.
  [[nodiscard]] uint32_t min_count(StateId state) const {
    const State& s = states_[state];
    return s.counter == kNone ? 0 : counters_[s.counter].min;
  }

  // Signature of a count, comparable between automata. Equal signatures mean: from states with
  // equal signatures, the same texts of `depth` bytes are allowed. 0: the count is far from its
  // bounds.
  [[nodiscard]] uint64_t count_signature(StateId state, uint32_t count, int depth) const;

  // Whether the state belongs to the outermost rule and no rule calls that rule, so that it is
  // always in the lowest frame.
  [[nodiscard]] bool is_outermost(StateId state) const { return state < num_outermost_; }

  // Number of further frames on the path to the rule's end that needs the fewest.
  [[nodiscard]] int32_t height(StateId state) const { return states_[state].height; }

  // The most calls that are opened before one byte is read.
  [[nodiscard]] int32_t call_chain() const { return call_chain_; }

  struct Signatures {
    // Equal for states, of any automaton, that treat the next `depth` bytes alike (up to collisions
    // of 64 bits) as long as the state's frame exists. Calls that the state itself makes are
    // ignored.
    std::vector<uint64_t> of_edges;
    // Equal for states that, once entered, treat the next `depth` - 1 bytes alike.
    std::vector<uint64_t> of_entry;
  };

  // Computes the signatures of all states. Cost: O(depth * edges).
  [[nodiscard]] Signatures signatures(int depth) const;

 private:
  friend class AutomatonBuilder;

  struct State {
    uint32_t first_byte_edge = 0;
    uint32_t first_call_edge = 0;
    uint16_t num_byte_edges = 0;
    bool is_final = false;
    uint32_t num_call_edges = 0;
    int32_t height = 0;
    uint32_t counter = kNone;
    uint32_t least_count = 0;
  };

  static constexpr uint32_t kNone = UINT32_MAX;

  struct Counter {
    uint32_t min = 0;
    uint32_t max = 0;
    uint32_t most_least_count = 0;  // largest least count of the rule's states
    StateId first_state = 0;        // first state of the rule
    uint32_t windows = kNone;       // index into windows_; kNone: the least counts alone decide
  };

  StateId start_ = 0;
  StateId num_outermost_ = 0;
  int32_t call_chain_ = 0;
  std::vector<State> states_;
  std::vector<ByteEdge> byte_edges_;
  std::vector<CallEdge> call_edges_;
  std::vector<Counter> counters_;
  std::vector<CountWindows> windows_;
  std::vector<StateId> callees_;  // begin states of rules, sorted so that called rules come before
                                  // their callers
};

}  // namespace heddle::grammar

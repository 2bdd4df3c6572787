// SPDX-License-Identifier: Apache-2.0
// Automaton: a compiled grammar. Each rule is a deterministic automaton over bytes that may call
// others; a stack of return states (stack_machine.h) makes it a pushdown automaton.
// A rule that counts (nfa.h) knows the count of its run, which is kept beside its state.
//
// Threading: immutable; thread-safe.
// Invariants: from every state the rule's end can be reached with a stack of at most height()
// further frames, and with least_count() more of its counter; no rule calls itself before it reads
// a byte; states and rules are bounded.
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
    uint8_t last = 0;  // included
    bool counts = false;
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

  // Of CountWindows.
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

  // A state with edges of bytes only: entering it changes no stack.
  [[nodiscard]] bool is_plain(StateId state) const {
    return !states_[state].is_final && states_[state].num_call_edges == 0;
  }

  // Whether its rule counts.
  [[nodiscard]] bool is_counted(StateId state) const { return states_[state].counter != kNone; }

  // Whether an edge may be taken to `target`, of the same rule, so that the count becomes `count`.
  [[nodiscard]] bool fits(StateId target, uint32_t count) const {
    const State& s = states_[target];
    if (s.counter == kNone) return true;
    const Counter& counter = counters_[s.counter];
    if (count < counter.min && counter.windows != kNone) {
      return windows_[counter.windows].may_end(target - counter.first_state, counter.min - count);
    }
    return s.least_count <= counter.max && count <= counter.max - s.least_count;
  }

  // Whether the rule may end there.
  [[nodiscard]] bool ends(StateId state, uint32_t count) const {
    const State& s = states_[state];
    return s.is_final && (s.counter == kNone || count >= counters_[s.counter].min);
  }

  // The smallest count with which a run may end.
  [[nodiscard]] uint32_t min_count(StateId state) const {
    const State& s = states_[state];
    return s.counter == kNone ? 0 : counters_[s.counter].min;
  }

  // The same for counts, of any automaton, that let the same texts of `depth` bytes follow from
  // states with the same signature; 0 where a count is far from its bounds.
  [[nodiscard]] uint64_t count_signature(StateId state, uint32_t count, int depth) const;

  // A state of the outermost rule, where no rule calls that: below it is never another one.
  [[nodiscard]] bool is_outermost(StateId state) const { return state < num_outermost_; }

  // Frames that the shortest way to the end of the rule needs.
  [[nodiscard]] int32_t height(StateId state) const { return states_[state].height; }

  // Rules that may open before one byte is read.
  [[nodiscard]] int32_t call_chain() const { return call_chain_; }

  struct Signatures {
    // The same for states that treat the next `depth` bytes alike, of any automaton (up to
    // collisions of 64 bits), as long as the frame of the state is not left; calls that the state
    // itself makes are not part of it.
    std::vector<uint64_t> of_edges;
    // The same for states that are alike once they are entered, with `depth` - 1 bytes to come.
    std::vector<uint64_t> of_entry;
  };

  // Cost: O(depth * edges).
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
    uint32_t most_least_count = 0;  // of the states of the rule
    StateId first_state = 0;        // of the rule
    uint32_t windows = kNone;       // of windows_; kNone where least counts say all
  };

  StateId start_ = 0;
  StateId num_outermost_ = 0;
  int32_t call_chain_ = 0;
  std::vector<State> states_;
  std::vector<ByteEdge> byte_edges_;
  std::vector<CallEdge> call_edges_;
  std::vector<Counter> counters_;
  std::vector<CountWindows> windows_;
  std::vector<StateId> callees_;  // begin states of rules, called ones before their callers
};

}  // namespace heddle::grammar

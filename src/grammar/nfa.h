// SPDX-License-Identifier: Apache-2.0
// Nfa: the form to which schemas, regexes and EBNF are first compiled: states connected by empty
// moves, by ranges of bytes, and by calls of rules. Automaton (automaton.h) is built from it.
//
// A rule may count: some of its moves add one to its count. A path through the rule has at most
// `max` such moves, and it ends only after at least `min`. So a text of at most a million
// characters is one loop instead of a million states.
//
// The first error is stored in status(). Everything that is added afterwards is ignored, so that
// code that builds an Nfa needs no checks.
//
// Threading: thread-compatible. Invariant: at most kMaxStates states and kMaxEdges moves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

namespace heddle::grammar {

using NfaState = uint32_t;
using RuleId = uint32_t;

// Before and after a text, this byte means the special token with that spelling instead of the
// text. It is not a UTF-8 byte, so no text contains it.
inline constexpr char kSpecialTokenByte = '\xFF';

[[nodiscard]] inline std::string special_token_bytes(std::string_view text) {
  return kSpecialTokenByte + std::string(text) + kSpecialTokenByte;
}

[[nodiscard]] inline bool is_special_token(std::string_view bytes) {
  return bytes.starts_with(kSpecialTokenByte);
}

class ByteDfa;

class Nfa {
 public:
  // Limits of states and moves: together some 50 MB while a grammar is compiled.
  static constexpr size_t kMaxStates = size_t{1} << 19;
  static constexpr size_t kMaxEdges = size_t{1} << 21;

  struct ByteMove {
    uint8_t first = 0;
    uint8_t last = 0;  // last byte of the range, included
    bool counts = false;
    NfaState target = 0;
  };

  struct Counter {
    uint32_t min = 0;
    uint32_t max = 0;  // must be at least `min`
  };

  struct Call {
    RuleId rule = 0;
    NfaState target = 0;  // the caller's state after the call
  };

  struct State {
    std::vector<NfaState> empty_moves;
    std::vector<ByteMove> byte_moves;
    std::vector<Call> calls;
  };

  // A rule: all paths from `begin` to `end`.
  struct Rule {
    std::string name;  // the rule's name in messages
    NfaState begin = 0;
    NfaState end = 0;
    std::optional<Counter> counter;
  };

  // Adds a rule. In a rule that counts, each move must always count or never count, whatever text
  // was read before it. A rule with a `min` above 0 must not call rules. Some path must have a
  // count within the bounds.
  RuleId add_rule(std::string name, std::optional<Counter> counter = std::nullopt);

  [[nodiscard]] const std::vector<Rule>& rules() const { return rules_; }

  NfaState add_state();
  void add_empty(NfaState from, NfaState to);
  void add_bytes(NfaState from, uint8_t first, uint8_t last, NfaState to, bool counts = false);
  void add_call(NfaState from, RuleId rule, NfaState to);

  // Adds the bytes of `text` in order.
  void add_text(NfaState from, std::string_view text, NfaState to);
  // Adds a ByteDfa. Moves out of its states for which `counting` is true count.
  void add_dfa(NfaState from, const ByteDfa& dfa, NfaState to,
               const std::vector<bool>& counting = {});

  [[nodiscard]] const std::vector<State>& states() const { return states_; }

  void fail(Status status);

  // Work of CountWindows for the rules added so far.
  [[nodiscard]] size_t window_work() const { return window_work_; }

  void add_window_work(size_t work) { window_work_ += work; }

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  [[nodiscard]] bool count_edge();

  std::vector<Rule> rules_;
  std::vector<State> states_;
  size_t num_edges_ = 0;
  size_t window_work_ = 0;
  Status status_;
};

}  // namespace heddle::grammar

// SPDX-License-Identifier: Apache-2.0
#include "grammar/nfa.h"

#include <utility>

#include <fmt/format.h>

#include "grammar/byte_dfa.h"

namespace heddle::grammar {

RuleId Nfa::add_rule(std::string name, std::optional<Counter> counter) {
  const NfaState begin = add_state();
  const NfaState end = add_state();
  rules_.push_back({.name = std::move(name), .begin = begin, .end = end, .counter = counter});
  return static_cast<RuleId>(rules_.size() - 1);
}

NfaState Nfa::add_state() {
  if (states_.size() >= kMaxStates) {
    fail(invalid_argument(
        fmt::format("the grammar needs more than {} states; use smaller repeat counts, lengths or "
                    "enumerations",
                    kMaxStates)));
    // After an error all new states are the last one: the automaton is never used.
    return static_cast<NfaState>(states_.size() - 1);
  }
  states_.emplace_back();
  return static_cast<NfaState>(states_.size() - 1);
}

bool Nfa::count_edge() {
  if (!status_.ok()) return false;
  if (++num_edges_ <= kMaxEdges) return true;
  fail(invalid_argument(fmt::format(
      "the grammar needs more than {} moves; use smaller repeat counts or lengths", kMaxEdges)));
  return false;
}

void Nfa::add_empty(NfaState from, NfaState to) {
  if (count_edge()) states_[from].empty_moves.push_back(to);
}

void Nfa::add_bytes(NfaState from, uint8_t first, uint8_t last, NfaState to, bool counts) {
  if (count_edge()) {
    states_[from].byte_moves.push_back(
        {.first = first, .last = last, .counts = counts, .target = to});
  }
}

void Nfa::add_call(NfaState from, RuleId rule, NfaState to) {
  if (count_edge()) states_[from].calls.push_back({.rule = rule, .target = to});
}

void Nfa::add_text(NfaState from, std::string_view text, NfaState to) {
  for (size_t i = 0; i < text.size() && status_.ok(); ++i) {
    const NfaState next = add_state();
    const auto byte = static_cast<uint8_t>(text[i]);
    add_bytes(from, byte, byte, next);
    from = next;
  }
  add_empty(from, to);
}

void Nfa::add_dfa(NfaState from, const ByteDfa& dfa, NfaState to,
                  const std::vector<bool>& counting) {
  std::vector<NfaState> copies;
  copies.reserve(dfa.states().size());
  for (size_t i = 0; i < dfa.states().size() && status_.ok(); ++i) copies.push_back(add_state());
  if (!status_.ok()) return;
  for (size_t i = 0; i < copies.size(); ++i) {
    const ByteDfa::State& state = dfa.states()[i];
    for (const ByteDfa::Edge& edge : state.edges) {
      add_bytes(copies[i], edge.first, edge.last, copies[edge.target],
                i < counting.size() && counting[i]);
    }
    if (state.is_final) add_empty(copies[i], to);
  }
  if (!copies.empty()) add_empty(from, copies[0]);
}

void Nfa::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

}  // namespace heddle::grammar

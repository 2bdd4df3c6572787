// SPDX-License-Identifier: Apache-2.0
#include "grammar/counted_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "grammar/count_windows.h"

namespace heddle::grammar {
namespace {

// The part of a character that is still missing in a state. In a set of texts each state has
// exactly one, because no character's bytes are a prefix of another's.
enum class Rest : uint8_t {
  kUnknown,
  kNothing,
  kOne,
  kTwo,
  kThree,
  kEscape,
  kHex4,
  kHex3,
  kHex2,
  kHex1
};

Rest rest_after(Rest rest, uint8_t byte, TextForm form) {
  switch (rest) {
    case Rest::kNothing:
      if (byte == '\\' && form == TextForm::kJsonString) return Rest::kEscape;
      if (byte < 0x80) return Rest::kNothing;
      return byte < 0xE0 ? Rest::kOne : byte < 0xF0 ? Rest::kTwo : Rest::kThree;
    case Rest::kTwo:
      return Rest::kOne;
    case Rest::kThree:
      return Rest::kTwo;
    case Rest::kEscape:
      return byte == 'u' ? Rest::kHex4 : Rest::kNothing;
    case Rest::kHex4:
      return Rest::kHex3;
    case Rest::kHex3:
      return Rest::kHex2;
    case Rest::kHex2:
      return Rest::kHex1;
    default:
      return Rest::kNothing;
  }
}

// The states of a set of texts that are between two characters.
std::vector<bool> states_between(const ByteDfa& texts, TextForm form) {
  std::vector<Rest> rests(texts.states().size(), Rest::kUnknown);
  std::vector<uint32_t> queue = {0};
  rests[0] = Rest::kNothing;
  for (size_t next = 0; next < queue.size(); ++next) {
    const uint32_t state = queue[next];
    for (const ByteDfa::Edge& edge : texts.states()[state].edges) {
      if (rests[edge.target] != Rest::kUnknown) continue;
      rests[edge.target] = rest_after(rests[state], edge.first, form);
      queue.push_back(edge.target);
    }
  }
  std::vector<bool> between(rests.size());
  for (size_t i = 0; i < rests.size(); ++i) between[i] = rests[i] == Rest::kNothing;
  return between;
}

// Decides which moves between the states of a set of texts count.
CountedMoves counted_moves(const ByteDfa& texts, const std::vector<bool>& between) {
  CountedMoves moves;
  moves.states.resize(texts.states().size());
  for (size_t i = 0; i < moves.states.size(); ++i) {
    moves.states[i].is_final = texts.states()[i].is_final;
    for (const ByteDfa::Edge& edge : texts.states()[i].edges) {
      moves.states[i].moves.push_back({.target = edge.target, .counts = between[i]});
    }
  }
  return moves;
}

}  // namespace

Nfa::Counter counter_of(CountRange range) {
  return {.min = static_cast<uint32_t>(range.min),
          .max = static_cast<uint32_t>(std::min(range.max.value_or(kMaxCount), kMaxCount))};
}

void add_counted_characters(Nfa& nfa, NfaState from, const CodePointSet& set, TextForm form,
                            NfaState to) {
  const NfaState loop = nfa.add_state();
  nfa.add_empty(from, loop);
  nfa.add_dfa(loop, code_points_dfa(set, form), loop, {true});
  nfa.add_empty(loop, to);
}

RuleId add_counted_string(Nfa& nfa, std::string name, CountRange range) {
  const RuleId id = nfa.add_rule(std::move(name), counter_of(range));
  const Nfa::Rule rule = nfa.rules()[id];
  const NfaState open = nfa.add_state();
  const NfaState close = nfa.add_state();
  nfa.add_bytes(rule.begin, '"', '"', open);
  add_counted_characters(nfa, open, all_code_points(), TextForm::kJsonString, close);
  nfa.add_bytes(close, '"', '"', rule.end);
  return id;
}

Result<std::optional<RuleId>> add_bounded_string(Nfa& nfa, std::string name, const ByteDfa& texts,
                                                 CountRange range, const TextSpelling& spelling) {
  if (texts.is_empty()) return std::optional<RuleId>();
  const std::vector<bool> between = states_between(texts, spelling.form);
  const Nfa::Counter counter = counter_of(range);
  const CountedMoves moves = counted_moves(texts, between);
  const std::vector<uint32_t> least = least_counts(moves);
  // The rule's automaton also has the quotes, so only half of its work limit is used here.
  const size_t spent = nfa.window_work();
  size_t budget = CountWindows::kMaxTotalWork / 2 - spent;
  const Result<CountWindows> windows =
      CountWindows::build(moves, least, counter, CountWindows::kMaxWork / 2, budget);
  nfa.add_window_work(CountWindows::kMaxTotalWork / 2 - spent - budget);
  HEDDLE_RETURN_IF_ERROR(windows.status());
  const bool has_texts =
      windows->is_empty() ? least[0] <= counter.max : windows->may_end(0, counter.min);
  if (!has_texts) return std::optional<RuleId>();
  const RuleId id = nfa.add_rule(std::move(name), counter);
  const Nfa::Rule rule = nfa.rules()[id];
  const NfaState open = nfa.add_state();
  const NfaState close = nfa.add_state();
  nfa.add_text(rule.begin, spelling.mark, open);
  nfa.add_dfa(open, texts, close, between);
  nfa.add_text(close, spelling.mark, rule.end);
  return std::optional(id);
}

}  // namespace heddle::grammar

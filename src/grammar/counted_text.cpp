// SPDX-License-Identifier: Apache-2.0
#include "grammar/counted_text.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

namespace heddle::grammar {
namespace {

// The rest of a character that is still to come in a state. Each state of a set of texts has one,
// as no character's bytes begin another one's.
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

Rest rest_after(Rest rest, uint8_t byte) {
  switch (rest) {
    case Rest::kNothing:
      if (byte == '\\') return Rest::kEscape;
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

// The states between characters.
std::vector<bool> states_between(const ByteDfa& texts) {
  std::vector<Rest> rests(texts.states().size(), Rest::kUnknown);
  std::vector<uint32_t> queue = {0};
  rests[0] = Rest::kNothing;
  for (size_t next = 0; next < queue.size(); ++next) {
    const uint32_t state = queue[next];
    for (const ByteDfa::Edge& edge : texts.states()[state].edges) {
      if (rests[edge.target] != Rest::kUnknown) continue;
      rests[edge.target] = rest_after(rests[state], edge.first);
      queue.push_back(edge.target);
    }
  }
  std::vector<bool> between(rests.size());
  for (size_t i = 0; i < rests.size(); ++i) between[i] = rests[i] == Rest::kNothing;
  return between;
}

// Characters of the shortest text.
int64_t least_characters(const ByteDfa& texts, const std::vector<bool>& between) {
  std::vector<int64_t> least(texts.states().size(), INT64_MAX);
  std::deque<uint32_t> queue = {0};
  least[0] = 0;
  while (!queue.empty()) {
    const uint32_t state = queue.front();
    queue.pop_front();
    if (texts.states()[state].is_final) return least[state];
    for (const ByteDfa::Edge& edge : texts.states()[state].edges) {
      const int64_t count = least[state] + (between[state] ? 1 : 0);
      if (count >= least[edge.target]) continue;
      least[edge.target] = count;
      between[state] ? queue.push_back(edge.target) : queue.push_front(edge.target);
    }
  }
  return INT64_MAX;
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

void add_written_characters(Nfa& nfa, NfaState from, const CodePointSet& set, TextForm form,
                            CountRange range, NfaState to) {
  const ByteDfa character = code_points_dfa(set, form);
  NfaState state = from;
  for (int64_t i = 0; i < range.max.value_or(range.min) && nfa.status().ok(); ++i) {
    if (i >= range.min) nfa.add_empty(state, to);
    const NfaState next = nfa.add_state();
    nfa.add_dfa(state, character, next);
    state = next;
  }
  nfa.add_empty(state, to);
  if (range.max) return;
  const NfaState loop = nfa.add_state();
  nfa.add_empty(state, loop);
  nfa.add_dfa(loop, character, loop);
  nfa.add_empty(loop, to);
}

// If each final state leads to a final one by one character, then from every state on all lengths
// from the least one are possible: what ends after n more characters also ends after n + 1.
bool can_count_least(const ByteDfa& texts) {
  const std::vector<bool> between = states_between(texts);
  const auto goes_on = [&](uint32_t last) {
    std::vector<uint32_t> queue = {last};
    for (size_t next = 0; next < queue.size(); ++next) {
      for (const ByteDfa::Edge& edge : texts.states()[queue[next]].edges) {
        if (texts.states()[edge.target].is_final) return true;
        if (!between[edge.target]) queue.push_back(edge.target);
      }
    }
    return false;
  };
  for (uint32_t state = 0; state < texts.states().size(); ++state) {
    if (texts.states()[state].is_final && !goes_on(state)) return false;
  }
  return true;
}

std::optional<RuleId> add_bounded_string(Nfa& nfa, std::string name, const ByteDfa& texts,
                                         CountRange range) {
  if (texts.is_empty()) return std::nullopt;
  const std::vector<bool> between = states_between(texts);
  if (range.max && least_characters(texts, between) > *range.max) return std::nullopt;
  const RuleId id = nfa.add_rule(std::move(name), counter_of(range));
  const Nfa::Rule rule = nfa.rules()[id];
  const NfaState open = nfa.add_state();
  const NfaState close = nfa.add_state();
  nfa.add_bytes(rule.begin, '"', '"', open);
  nfa.add_dfa(open, texts, close, between);
  nfa.add_bytes(close, '"', '"', rule.end);
  return id;
}

}  // namespace heddle::grammar

// SPDX-License-Identifier: Apache-2.0
#include "grammar/json_parts.h"

#include <vector>

#include <fmt/format.h>

#include "grammar/code_points.h"
#include "grammar/marked_text.h"

namespace heddle::grammar {

void JsonParts::add_space(NfaState from, NfaState to) {
  if (!allows_whitespace_) {
    nfa_.add_empty(from, to);
    return;
  }
  constexpr int kMaxIndentation = 64;
  const auto add_blank = [](Nfa& nfa, NfaState begin, NfaState end) {
    nfa.add_empty(begin, end);
    nfa.add_bytes(begin, ' ', ' ', end);
    NfaState state = nfa.add_state();
    nfa.add_bytes(begin, '\n', '\n', state);
    for (int i = 0; i < kMaxIndentation; ++i) {
      nfa.add_empty(state, end);
      const NfaState next = nfa.add_state();
      nfa.add_bytes(state, ' ', ' ', next);
      nfa.add_bytes(state, '\t', '\t', next);
      state = next;
    }
    nfa.add_empty(state, end);
  };
  nfa_.add_call(from, shared_rule("blank", add_blank), to);
}

void JsonParts::add_comma(NfaState from, NfaState to) {
  const NfaState comma = nfa_.add_state();
  nfa_.add_bytes(from, ',', ',', comma);
  add_space(comma, to);
}

RuleId JsonParts::string_rule() {
  if (texts_.form == TextForm::kJsonString) return shared_rule("string", add_json_string);
  return shared_rule("text", [this](Nfa& nfa, NfaState from, NfaState to) {
    const NfaState inside = nfa.add_state();
    nfa.add_text(from, texts_.mark, inside);
    std::vector<Mark> marks = {{.text = texts_.mark, .target = to}};
    if (texts_.mark != kGemmaTextMark) {
      marks.push_back({.text = std::string(kGemmaTextMark), .target = nfa.add_state()});
    }
    add_marked_text(nfa, inside, marks, /*may_end=*/false, to);
  });
}

Result<ByteDfa> JsonParts::plain_texts(bool are_counted) const {
  CodePointSet set = all_code_points();
  if (are_counted && !is_special_token(texts_.mark)) {
    const auto first = static_cast<uint32_t>(texts_.mark.front());
    set = complement({{.first = first, .last = first}});
  }
  const ByteDfa character = code_points_dfa(set, TextForm::kPlain);
  const auto all = set_of([&](Nfa& nfa, NfaState begin, NfaState end) {
    nfa.add_dfa(begin, character, begin);
    nfa.add_empty(begin, end);
  });
  const auto marked = set_of([&](Nfa& nfa, NfaState begin, NfaState end) {
    nfa.add_dfa(begin, character, begin);
    nfa.add_text(begin, kGemmaTextMark, end);
    nfa.add_dfa(end, character, end);
  });
  if (!all.ok()) return all;
  return marked.ok() ? all->subtract(*marked) : marked;
}

RuleId JsonParts::string_of_length(CountRange range) {
  const std::string name = range.max ? fmt::format("{} to {} characters", range.min, *range.max)
                                     : fmt::format("at least {} characters", range.min);
  const auto found = rules_.find(name);
  if (found != rules_.end()) return found->second;
  const RuleId id = add_counted_string(nfa_, name, range);
  rules_.emplace(name, id);
  return id;
}

}  // namespace heddle::grammar

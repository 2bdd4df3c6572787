// SPDX-License-Identifier: Apache-2.0
// JsonParts: the parts of JSON texts that many places of a schema share: white space, commas,
// strings of any or of bounded length. Each is added to the Nfa once, as a rule. Also builds
// regular sets that are combined before they are added.
//
// Threading: thread-compatible. The Nfa must outlive this object.
#pragma once

#include <map>
#include <string>
#include <utility>

#include <heddle/status.h>

#include "grammar/byte_dfa.h"
#include "grammar/counted_text.h"
#include "grammar/nfa.h"
#include "grammar/value_spelling.h"

namespace heddle::grammar {

class JsonParts {
 public:
  // `allows_whitespace`: if false, JSON tokens follow one another directly.
  JsonParts(Nfa& nfa, bool allows_whitespace, TextSpelling texts)
      : nfa_(nfa), allows_whitespace_(allows_whitespace), texts_(std::move(texts)) {}

  [[nodiscard]] Nfa& nfa() { return nfa_; }

  [[nodiscard]] bool allows_whitespace() const { return allows_whitespace_; }

  [[nodiscard]] const TextSpelling& texts() const { return texts_; }

  // Texts between marks without escapes: any characters except the mark. If characters are counted
  // and the mark is not a special token, a text cannot contain the mark's first byte, because the
  // automaton cannot both count that byte and treat it as the mark.
  [[nodiscard]] Result<ByteDfa> plain_texts(bool are_counted) const;

  // Adds the white space between tokens: none, a blank, or a line break with indentation.
  void add_space(NfaState from, NfaState to);

  // Adds a comma and the white space after it.
  void add_comma(NfaState from, NfaState to);

  RuleId string_rule();

  // The rule of JSON strings whose number of characters is within `range`; `range.min` must be at
  // most `range.max` and kMaxCount.
  RuleId string_of_length(CountRange range);

  // The rule called `name`; when it is first requested, `add` adds its content between two states.
  template <typename Add>
  RuleId shared_rule(const std::string& name, const Add& add) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    const RuleId id = nfa_.add_rule(name);
    rules_.emplace(name, id);
    const Nfa::Rule place = nfa_.rules()[id];
    add(nfa_, place.begin, place.end);
    return id;
  }

 private:
  Nfa& nfa_;
  const bool allows_whitespace_;
  const TextSpelling texts_;
  std::map<std::string, RuleId> rules_;
};

// The set of texts that `add` adds between two states of a new Nfa. Error: that of ByteDfa.
template <typename Add>
Result<ByteDfa> set_of(const Add& add) {
  Nfa part;
  const NfaState begin = part.add_state();
  const NfaState end = part.add_state();
  add(part, begin, end);
  return ByteDfa::from_nfa(part, begin, end);
}

}  // namespace heddle::grammar

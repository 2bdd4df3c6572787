// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "grammar/counted_text.h"
#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/marked_text.h"
#include "grammar/nfa.h"
#include "grammar/pattern.h"
#include "grammar/structural_tag.h"

namespace heddle::grammar {
namespace {

Status add_source(Nfa& nfa, NfaState from, const GrammarSource& source,
                  const VocabularyMasks* vocabulary, std::vector<std::string>& left_out,
                  const CompileCheck* check, NfaState to) {
  const JsonSchemaOptions options{.allows_whitespace = source.allows_whitespace, .check = check};
  switch (source.kind) {
    case GrammarKind::kJsonObject:
      return add_json_schema(nfa, from, {{"type", "object"}}, options, to);
    case GrammarKind::kJsonSchema: {
      HEDDLE_ASSIGN_OR_RETURN(const nlohmann::ordered_json schema, parse_schema(source.text));
      return add_json_schema(nfa, from, schema, options, to);
    }
    case GrammarKind::kRegex: {
      HEDDLE_ASSIGN_OR_RETURN(const Pattern pattern, Pattern::parse(source.text));
      pattern.add_whole(nfa, from, TextForm::kPlain, to);
      return nfa.status();
    }
    case GrammarKind::kEbnf:
      return add_ebnf(nfa, from, source.text, to);
    case GrammarKind::kStructuralTag: {
      HEDDLE_ASSIGN_OR_RETURN(const nlohmann::ordered_json tag, parse_schema(source.text));
      return add_structural_tag(nfa, from, tag, options, vocabulary, left_out, to);
    }
  }
  return internal_error("a grammar of no kind");
}

// If the whole answer is one repeated character, that repeat, whose characters are counted instead
// of written out.
std::optional<Pattern::Repeated> repeated_text(const GrammarSource& source) {
  constexpr int64_t kMany = 64;
  if (source.kind != GrammarKind::kRegex || !source.free_text_end.empty()) return std::nullopt;
  const Result<Pattern> pattern = Pattern::parse(source.text);
  if (!pattern.ok()) return std::nullopt;
  auto repeated = pattern->as_repeated(/*is_anchored=*/false);
  if (!repeated || repeated->range.max.value_or(repeated->range.min) <= kMany) return std::nullopt;
  return repeated;
}

// The bytes of a mark that may begin with a special token, or be one.
std::string mark_bytes(std::string_view mark, const VocabularyMasks* vocabulary) {
  for (size_t size = mark.size(); vocabulary != nullptr && size > 0; --size) {
    const std::string_view token = mark.substr(0, size);
    if (!vocabulary->has_special_token(token)) continue;
    return special_token_bytes(token) + std::string(mark.substr(size));
  }
  return std::string(mark);
}

}  // namespace

Result<Automaton> compile(const GrammarSource& source, const VocabularyMasks* vocabulary,
                          std::vector<std::string>* left_out, const CompileCheck* check) {
  Nfa nfa;
  if (const auto repeated = repeated_text(source)) {
    const RuleId text = nfa.add_rule("the answer", counter_of(repeated->range));
    const Nfa::Rule place = nfa.rules()[text];
    add_counted_characters(nfa, place.begin, repeated->set, TextForm::kPlain, place.end);
    return Automaton::build(nfa, text);
  }
  const RuleId root = nfa.add_rule("the answer");
  const Nfa::Rule place = nfa.rules()[root];
  NfaState begin = place.begin;
  if (!source.free_text_end.empty()) {
    begin = nfa.add_state();
    NfaState text = place.begin;
    if (!source.free_text_begin.empty()) {
      text = nfa.add_state();
      nfa.add_text(place.begin, mark_bytes(source.free_text_begin, vocabulary), text);
      nfa.add_empty(place.begin, begin);
    }
    const NfaState after = nfa.add_state();
    const std::vector<Mark> marks = {
        {.text = mark_bytes(source.free_text_end, vocabulary), .target = after}};
    add_marked_text(nfa, text, marks, false, after);
    const NfaState second = nfa.add_state();
    nfa.add_empty(after, begin);
    nfa.add_bytes(after, '\n', '\n', second);
    nfa.add_empty(second, begin);
    nfa.add_bytes(second, '\n', '\n', begin);
  }
  std::vector<std::string> unused;
  HEDDLE_RETURN_IF_ERROR(add_source(nfa, begin, source, vocabulary,
                                    left_out != nullptr ? *left_out : unused, check, place.end));
  return Automaton::build(nfa, root);
}

}  // namespace heddle::grammar

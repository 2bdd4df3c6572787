// SPDX-License-Identifier: Apache-2.0
// One rule says which token ends an answer that is held to a form (request/sequence.h): tried on
// real forms with every kind of token that ends answers.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/thinking_budget.h"
#include "request/sequence.h"

namespace heddle {
namespace {

// Every byte is a token, with some words; ids from 256 on are an end that is special, one that is
// not, and words.
constexpr TokenId kSpecialEnd = 256;
constexpr TokenId kPlainEnd = 257;

std::shared_ptr<grammar::VocabularyMasks> vocabulary_with_ends(std::vector<TokenId> ends) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.push_back(grammar::special_token_bytes("<end>"));
  tokens.emplace_back("</s>");
  for (const char* const word : {"{\"", "\"}", "\":", "true", "</think>", "\n</tool_call>", "ab"}) {
    tokens.emplace_back(word);
  }
  return std::make_shared<grammar::VocabularyMasks>(std::move(tokens), std::move(ends));
}

struct DrawnForm {
  std::shared_ptr<const Constraint> constraint;
  std::shared_ptr<grammar::VocabularyMasks> masks;
};

DrawnForm form_of(grammar::GrammarSource source, const std::vector<TokenId>& ends) {
  DrawnForm form{.constraint = nullptr, .masks = vocabulary_with_ends(ends)};
  Result<grammar::Automaton> automaton = grammar::compile(source, form.masks.get());
  EXPECT_TRUE(automaton.ok()) << automaton.status().to_string();
  form.constraint =
      std::make_shared<const grammar::TokenGrammar>(std::move(automaton).value(), form.masks);
  return form;
}

// Draws tokens that the masks allow until the answer ends or is long. Returns its text.
std::string draw(const DrawnForm& form, const StopConditions& stop, const std::vector<TokenId>& eos,
                 std::mt19937& random) {
  Request asked;
  asked.id = "one";
  asked.prompt = {1, 2, 3};
  asked.stop = stop;
  asked.constraint = form.constraint;
  request::Sequence sequence(1, std::move(asked), 0, eos);
  std::string text;
  std::vector<uint32_t> mask(form.masks->num_words());
  for (int64_t count = 0; count < 300 && !sequence.constraint->is_over(); ++count) {
    const Status status = sequence.fill_mask(count, mask);
    EXPECT_TRUE(status.ok()) << status.to_string() << " after " << text;
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < form.masks->vocab_size(); ++token) {
      if ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0) {
        allowed.push_back(token);
      }
    }
    EXPECT_FALSE(allowed.empty()) << "after " << text;
    if (!status.ok() || allowed.empty()) return text;
    TokenId token = allowed[random() % allowed.size()];
    for (const TokenId closing : {TokenId{'"'}, TokenId{'}'}, TokenId{']'}}) {
      const bool may_close = std::ranges::find(allowed, closing) != allowed.end();
      if (count > 40 && may_close && random() % 2 == 0) token = closing;
    }
    const bool was_complete = sequence.constraint->is_complete();
    sequence.append(token);
    EXPECT_TRUE(sequence.constraint_status.ok()) << text << " then " << token;
    if (sequence.has_ended(count + 1, token)) {
      EXPECT_TRUE(was_complete) << text << " then " << token;
      EXPECT_GE(count, stop.min_new_tokens) << text;
      return text;
    }
    text += form.masks->text(token);
  }
  return text;
}

TEST(AnswerEndsTest, NoFormIsLeftWithoutATokenToDrawWhateverEndsAnswers) {
  using grammar::GrammarKind;
  const grammar::GrammarSource sources[] = {
      {.kind = GrammarKind::kJsonObject, .text = ""},
      {.kind = GrammarKind::kJsonSchema,
       .text = R"({"type": "object", "properties": {"a": {"type": "boolean"},
                   "b": {"type": "string", "maxLength": 3}}, "required": ["a", "b"]})"},
      {.kind = GrammarKind::kRegex, .text = "\\{*"},
      {.kind = GrammarKind::kRegex, .text = "a?"},
      {.kind = GrammarKind::kStructuralTag,
       .text = R"({"format": {"type": "tags_with_separator", "separator": "", "at_least_one": true,
                   "stop_after_first": true, "tags": [{"begin": "<", "content": {"type":
                   "json_schema", "json_schema": {"type": "integer"}}, "end": "\n</tool_call>"}]}})"},
      {.kind = GrammarKind::kJsonObject, .text = "", .free_text_end = "</think>"},
  };
  const std::vector<TokenId> ends[] = {
      {kSpecialEnd}, {kPlainEnd}, {'{'}, {'"', '{', '}'}, {258, 259, 263, kSpecialEnd}, {'a', 'b'}};
  std::mt19937 random(19);
  for (const grammar::GrammarSource& source : sources) {
    for (const std::vector<TokenId>& eos : ends) {
      const DrawnForm form = form_of(source, eos);
      for (const std::vector<TokenId>& stops : ends) {
        for (const int64_t min_tokens : {0, 3, 60}) {
          for (const bool ignore_eos : {false, true}) {
            SCOPED_TRACE(source.text);
            draw(form,
                 {.max_new_tokens = 400,
                  .min_new_tokens = min_tokens,
                  .token_ids = stops,
                  .ignore_eos = ignore_eos},
                 eos, random);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(AnswerEndsTest, AThoughtThatABudgetEndsIsNotCutByTokensThatEndAnswers) {
  std::mt19937 random(23);
  for (const std::vector<TokenId>& ends :
       {std::vector<TokenId>{262}, {'<', '/'}, {kSpecialEnd}, {kPlainEnd, 262}}) {
    DrawnForm form{.constraint = nullptr, .masks = vocabulary_with_ends(ends)};
    grammar::ThinkingBudgetOptions options{.budget_tokens = 2, .ending = {'<', '/', 262}};
    options.close.text = "</think>";
    form.constraint =
        std::make_shared<const grammar::ThinkingBudget>(std::move(options), nullptr, form.masks);
    for (const int64_t min_tokens : {0, 3, 60}) {
      draw(form, {.max_new_tokens = 400, .min_new_tokens = min_tokens, .token_ids = {'<', 262}},
           ends, random);
    }
  }
}

}  // namespace
}  // namespace heddle

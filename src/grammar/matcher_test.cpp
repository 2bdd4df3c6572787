// SPDX-License-Identifier: Apache-2.0
#include "grammar/matcher.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/testing/mask_fixture.h"

namespace heddle::grammar {
namespace {

using testing::is_allowed;
using testing::kEndToken;

std::shared_ptr<const TokenGrammar> grammar_of(GrammarKind kind, std::string text,
                                               std::shared_ptr<VocabularyMasks> masks) {
  Result<Automaton> automaton = compile({.kind = kind, .text = std::move(text)});
  EXPECT_TRUE(automaton.ok()) << automaton.status().to_string();
  return testing::token_grammar(std::move(automaton).value(), std::move(masks));
}

std::vector<uint32_t> mask_of(ConstraintState& state, const TokenGrammar& grammar) {
  std::vector<uint32_t> mask(grammar.masks().num_words(), ~0u);
  EXPECT_TRUE(state.fill_mask(mask).ok());
  return mask;
}

void accept_bytes(ConstraintState& state, std::string_view text) {
  for (const char byte : text) {
    ASSERT_TRUE(state.accept(static_cast<uint8_t>(byte))) << byte << " in " << text;
  }
}

// The mask as it should be: every token tried on its own.
std::vector<uint32_t> tried_mask(ConstraintState& state, const TokenGrammar& grammar) {
  std::vector<uint32_t> mask(grammar.masks().num_words());
  for (TokenId token = 0; token < grammar.masks().vocab_size(); ++token) {
    if (grammar.masks().bytes(token).size() > kMaxTokenBytes || !state.accept(token)) continue;
    state.roll_back(1);
    mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  return mask;
}

TEST(MatcherTest, MasksAreTheTokensThatMayFollow) {
  const auto masks = testing::small_vocabulary();

  const struct {
    GrammarKind kind;
    const char* text;
  } kGrammars[] = {
      {GrammarKind::kJsonObject, ""},
      {GrammarKind::kJsonSchema,
       R"({"properties": {"abc": {"type": "string", "maxLength": 40}, "name": {"type": "array",
           "items": {"type": ["number", "null"]}}}, "additionalProperties": {"type": "boolean"}})"},
      {GrammarKind::kRegex, "(abc|\"a|[^xa\"]{3,50}x)*"},
      {GrammarKind::kEbnf,
       "root ::= (a | b)+ \"!\"\na ::= \"[\" root? \"]\"\nb ::= \"[\" [a-c]* c\nc ::= \"]\""},
      {GrammarKind::kStructuralTag,
       R"({"structures": [{"begin": "<tool_call>", "schema": {}, "end": "</"}], "triggers": ["<t"]})"},
      {GrammarKind::kStructuralTag,
       R"({"format": {"type": "triggered_tags", "triggers": ["<tool_call>", "abc123"], "tags": [
           {"begin": "<tool_call>", "content": {"type": "any_text"}, "end": "</think>"},
           {"begin": "abc123 the", "content": {"type": "json_schema", "json_schema":
             {"type": "string", "maxLength": 40}}, "end": "</"}]}})"},
      {GrammarKind::kRegex, "[^\"]{20,90}"},
      {GrammarKind::kRegex, R"(a?2?\x00)"},
      {GrammarKind::kRegex, R"((abc|[^a])2?\x00?[\x00-\x05])"},
      {GrammarKind::kRegex, R"(([\x00-\x05]?[\x00-\x02]?\x00\x00?){1,3})"},
      {GrammarKind::kEbnf, "root ::= a* \"2\"? [\\x00]\na ::= [\\x00-\\x05] \"!\"?"},
      {GrammarKind::kJsonSchema, R"({"type": "string", "minLength": 36, "maxLength": 50})"},
      {GrammarKind::kJsonSchema,
       R"({"type": "string", "pattern": "^(abc|name| )*$", "maxLength": 41})"},
      {GrammarKind::kJsonSchema,
       R"({"type": "string", "pattern": "^(abc|name|123 the)*$", "minLength": 101, "maxLength": 102})"},
      {GrammarKind::kJsonSchema,
       R"({"pattern": "^((a|123){4})*$", "minLength": 41, "maxLength": 44})"},
      {GrammarKind::kJsonSchema,
       R"({"items": {"enum": [1, 12, 123]}, "minItems": 2, "maxItems": 40})"},
  };

  std::mt19937 random(3);
  for (const auto& [kind, text] : kGrammars) {
    SCOPED_TRACE(text);
    const auto grammar = grammar_of(kind, text, masks);
    for (int walk = 0; walk < 20; ++walk) {
      const auto state = grammar->start();
      for (int i = 0; i < 60; ++i) {
        const std::vector<uint32_t> mask = mask_of(*state, *grammar);
        ASSERT_EQ(mask, tried_mask(*state, *grammar)) << walk << " " << i;
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < masks->vocab_size(); ++token) {
          if (is_allowed(mask, token)) allowed.push_back(token);
        }
        if (allowed.empty()) break;  // after the end
        ASSERT_TRUE(state->accept(allowed[random() % allowed.size()]));
      }
    }
  }
}

TEST(MatcherTest, TokensCanBeTakenBack) {
  const auto grammar = grammar_of(GrammarKind::kJsonObject, "", testing::small_vocabulary());
  const auto state = grammar->start();
  accept_bytes(*state, "{\"a\": [1");
  const std::vector<uint32_t> before = mask_of(*state, *grammar);
  accept_bytes(*state, "], \"b\": {\"c\":");
  EXPECT_FALSE(state->accept('}'));
  state->roll_back(13);
  EXPECT_EQ(mask_of(*state, *grammar), before);
  accept_bytes(*state, "]}");
  EXPECT_TRUE(state->is_complete());
  EXPECT_TRUE(state->accept(kEndToken));
  EXPECT_FALSE(state->accept(' '));
  state->roll_back(1);
  EXPECT_TRUE(is_allowed(mask_of(*state, *grammar), kEndToken));
}

std::vector<TokenId> forced(ConstraintState& state, int64_t most = 16) {
  std::vector<TokenId> tokens;
  state.forced_tokens(most, tokens);
  return tokens;
}

std::string text_of(const TokenGrammar& grammar, std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens) text += grammar.masks().bytes(token);
  return text;
}

TEST(MatcherTest, ATextThatTheGrammarForcesIsKnown) {
  const auto grammar = grammar_of(GrammarKind::kJsonSchema,
                                  R"({"type": "object", "required": ["name"], "properties":
                                      {"name": {"enum": ["the end", "the other"]}},
                                      "additionalProperties": false})",
                                  testing::small_vocabulary());
  const auto state = grammar->start();
  EXPECT_THAT(forced(*state), ::testing::ElementsAre('{')) << "then white space may follow";
  accept_bytes(*state, "{\"");
  const std::vector<uint32_t> mask = mask_of(*state, *grammar);
  EXPECT_EQ(text_of(*grammar, forced(*state)), "name\":");
  EXPECT_EQ(text_of(*grammar, forced(*state, 1)), "n") << "no tokens of the vocabulary join there";
  EXPECT_THAT(forced(*state, 0), ::testing::IsEmpty());
  EXPECT_EQ(mask_of(*state, *grammar), mask) << "nothing has changed";
  accept_bytes(*state, "name\":");
  EXPECT_THAT(forced(*state), ::testing::IsEmpty()) << "white space is a choice";
  accept_bytes(*state, " \"");
  EXPECT_EQ(text_of(*grammar, forced(*state)), "the ");
  accept_bytes(*state, "the o");
  EXPECT_EQ(text_of(*grammar, forced(*state)), "ther\"");
  accept_bytes(*state, "ther\"}");
  EXPECT_THAT(forced(*state), ::testing::IsEmpty()) << "it may end here";
  ASSERT_TRUE(state->accept(kEndToken));
  EXPECT_THAT(forced(*state), ::testing::IsEmpty());
}

TEST(MatcherTest, ForcedTokensMayFollowOneAfterTheOther) {
  const auto grammar = grammar_of(GrammarKind::kEbnf,
                                  R"(root ::= "[" (list | pair) "]"
                                     list ::= "name" | "name" root
                                     pair ::= "abc\":" root "abc\":")",
                                  testing::small_vocabulary());
  std::mt19937 random(5);
  int num_forced = 0;
  for (int walk = 0; walk < 200; ++walk) {
    const auto state = grammar->start();
    while (!state->is_over()) {
      const std::vector<TokenId> tokens = forced(*state);
      for (const TokenId token : tokens) {
        ASSERT_TRUE(is_allowed(mask_of(*state, *grammar), token));
        ASSERT_TRUE(state->accept(token));
        ++num_forced;
      }
      if (state->is_over()) break;
      std::vector<TokenId> allowed;
      const std::vector<uint32_t> mask = mask_of(*state, *grammar);
      for (TokenId token = 0; token < grammar->vocab_size(); ++token) {
        if (is_allowed(mask, token)) allowed.push_back(token);
      }
      ASSERT_TRUE(state->accept(allowed[random() % allowed.size()]));
    }
  }
  EXPECT_GT(num_forced, 500);
}

TEST(MatcherTest, OnlyTextIsOfferedAndNoTokenOutsideTheVocabulary) {
  const auto grammar = grammar_of(GrammarKind::kRegex, "(.|\n)*", testing::small_vocabulary());
  const auto state = grammar->start();
  const std::vector<uint32_t> mask = mask_of(*state, *grammar);
  EXPECT_TRUE(is_allowed(mask, kEndToken));
  EXPECT_FALSE(is_allowed(mask, kEndToken + 1));  // special: it has no text
  const auto size = static_cast<TokenId>(grammar->masks().vocab_size());
  EXPECT_FALSE(is_allowed(mask, size - 1));  // longer than kMaxTokenBytes
  EXPECT_FALSE(state->accept(kEndToken + 1));
  EXPECT_FALSE(state->accept(size));
  EXPECT_FALSE(state->accept(-1));
  EXPECT_TRUE(state->accept(size - 1));
}

TEST(MatcherTest, NestingIsBoundedAndAlwaysComesToAnEnd) {
  const auto grammar =
      grammar_of(GrammarKind::kJsonSchema, R"({"type": "array"})", testing::small_vocabulary());
  const auto state = grammar->start();
  int depth = 0;
  for (; depth < 5000; ++depth) {
    if (!is_allowed(mask_of(*state, *grammar), '[')) break;
    ASSERT_TRUE(state->accept('['));
  }
  EXPECT_GT(depth, 200);
  EXPECT_LE(depth, Automaton::kMaxDepth + 1);
  EXPECT_EQ(mask_of(*state, *grammar), tried_mask(*state, *grammar));
  for (; depth > 0; --depth) {
    ASSERT_TRUE(is_allowed(mask_of(*state, *grammar), ']'));
    ASSERT_TRUE(state->accept(']'));
  }
  EXPECT_TRUE(state->is_complete());
}

TEST(MatcherTest, LongAnswersForgetStacksThatAreGone) {
  const auto grammar =
      grammar_of(GrammarKind::kJsonSchema, R"({"items": {"items": {"items": {}}}})",
                 testing::small_vocabulary());
  const auto state = grammar->start();
  accept_bytes(*state, "[");
  for (int i = 0; i < 3000; ++i)
    accept_bytes(*state, i == 0 ? "[[{\"a\":[1]}]]" : ",[[{\"a\":[1]}]]");
  accept_bytes(*state, "]");
  EXPECT_TRUE(state->is_complete());
}

TEST(MatcherTest, GrammarsWithTooManyReadingsFailWithAReason) {
  // After n letters a stack holds any of 2^n sequences of the two ways to return.
  const auto grammar = grammar_of(
      GrammarKind::kEbnf, "root ::= x | y | \"d\"\nx ::= \"a\" root \"b\"\ny ::= \"a\" root \"c\"",
      testing::small_vocabulary());
  const auto state = grammar->start();
  std::vector<uint32_t> mask(grammar->masks().num_words());
  Status status;
  for (int i = 0; i < 40 && status.ok(); ++i) {
    ASSERT_TRUE(state->accept('a'));
    status = state->fill_mask(mask);
  }
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("too ambiguous"));
}

TEST(MatcherTest, MasksThatCostTheMostAreMadeBeforehand) {
  const auto masks = testing::small_vocabulary();
  const auto grammar = grammar_of(
      GrammarKind::kJsonSchema,
      R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 500}}})", masks);
  ASSERT_EQ(masks->num_kept(), 0u);
  grammar->make_masks();
  const size_t num_made = masks->num_kept();
  EXPECT_GE(num_made, 1u);
  EXPECT_LE(num_made, TokenGrammar::kMaxMadeMasks);
  const auto state = grammar->start();
  accept_bytes(*state, "{\"a\": \"text");
  (void)mask_of(*state, *grammar);
  EXPECT_EQ(masks->num_kept(), num_made) << "the inside of a string is one of them";
  grammar->make_masks();
  EXPECT_EQ(masks->num_kept(), num_made);
}

// The engine makes no mask at the end of a prompt: places at which a mark may have begun are many,
// and each is a kind of its own.
TEST(MatcherTest, TheFirstMaskOfAnswersIsMadeBeforehand) {
  GrammarSource source = {
      .kind = GrammarKind::kStructuralTag,
      .text = R"({"format": {"type": "triggered_tags", "triggers": ["<tool_call>\n{\"name\": \""],
                  "tags": [{"begin": "<tool_call>\n{\"name\": \"f", "content": {"type": "any_text"},
                            "end": "</tool_call>"}]}})"};
  for (const char* const end : {"", "</think>", "</a long end of the reasoning>"}) {
    for (const char* const begin : {"", "<think>"}) {
      source.free_text_end = end;
      source.free_text_begin = begin;
      const auto masks = testing::small_vocabulary();
      Result<Automaton> automaton = compile(source);
      ASSERT_TRUE(automaton.ok());
      const auto grammar = testing::token_grammar(std::move(automaton).value(), masks);
      grammar->make_masks();
      const size_t num_made = masks->num_kept();
      (void)mask_of(*grammar->start(), *grammar);
      EXPECT_EQ(masks->num_kept(), num_made) << begin << end;
    }
  }
}

TEST(MatcherTest, AnAnswerIsOverWhereNothingMayFollow) {
  const auto masks = testing::small_vocabulary();
  const auto over_after = [&](GrammarKind kind, const char* text, std::string_view answer) {
    const auto state = grammar_of(kind, text, masks)->start();
    accept_bytes(*state, answer);
    return state->is_over();
  };
  EXPECT_TRUE(over_after(GrammarKind::kJsonObject, "", "{\"a\": 1}"));
  EXPECT_FALSE(over_after(GrammarKind::kJsonObject, "", "{\"a\": 1"));
  EXPECT_FALSE(over_after(GrammarKind::kRegex, "a+", "a")) << "it may go on";
  EXPECT_TRUE(over_after(GrammarKind::kRegex, "a?", "a"));
  EXPECT_TRUE(over_after(GrammarKind::kRegex, "", ""));
  const auto ended = grammar_of(GrammarKind::kRegex, "a*", masks)->start();
  EXPECT_FALSE(ended->is_over());
  ASSERT_TRUE(ended->accept(kEndToken));
  EXPECT_TRUE(ended->is_over());
}

}  // namespace
}  // namespace heddle::grammar

// SPDX-License-Identifier: Apache-2.0
#include "grammar/structural_tag.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/testing/mask_fixture.h"

namespace heddle::grammar {
namespace {

using ::testing::HasSubstr;

constexpr TokenId kEnd = 300;    // ends an answer, a special token
constexpr TokenId kOpen = 301;   // <|open|>
constexpr TokenId kClose = 302;  // <|close|>
constexpr TokenId kOther = 303;  // <|close
constexpr TokenId kWord = 304;   // "|>", a piece of the text of a mark

// Bytes, and tokens of both kinds.
std::shared_ptr<VocabularyMasks> special_vocabulary() {
  std::vector<std::string> tokens(305);
  for (size_t byte = 1; byte < 0xFF; ++byte) {
    tokens[byte] = std::string(1, static_cast<char>(byte));
  }
  tokens[kEnd] = special_token_bytes("<|end|>");
  tokens[kOpen] = special_token_bytes("<|open|>");
  tokens[kClose] = special_token_bytes("<|close|>");
  tokens[kOther] = special_token_bytes("<|close");
  tokens[kWord] = "|>";
  return std::make_shared<VocabularyMasks>(std::move(tokens), std::vector<TokenId>{kEnd});
}

Result<Automaton> compile_tag(std::string text, const VocabularyMasks* vocabulary) {
  return compile({.kind = GrammarKind::kStructuralTag, .text = std::move(text)}, vocabulary);
}

std::string refusal_of_tag(std::string text) {
  const Result<Automaton> automaton = compile_tag(std::move(text), nullptr);
  EXPECT_FALSE(automaton.ok());
  return automaton.ok() ? "" : automaton.status().message();
}

bool accept_text(ConstraintState& state, std::string_view text) {
  for (const char byte : text) {
    if (!state.accept(static_cast<uint8_t>(byte))) return false;
  }
  return true;
}

constexpr const char* kMarked = R"({"format": {"type": "sequence", "elements": [
    {"type": "token", "token": "<|open|>"},
    {"type": "tag", "begin": "a", "end": {"type": "token", "token": "<|close|>"},
     "content": {"type": "any_text", "excludes": ["<|open|>", "<|close|>"]}},
    {"type": "json_schema", "json_schema": {"type": "string"}}]}})";

TEST(StructuralTagTest, ATokenIsTheSpecialOneThatIsWrittenSo) {
  const auto masks = special_vocabulary();
  Result<Automaton> automaton = compile_tag(kMarked, masks.get());
  ASSERT_TRUE(automaton.ok()) << automaton.status().to_string();
  const auto grammar = testing::token_grammar(std::move(automaton).value(), masks);
  const auto state = grammar->start();
  const auto allowed = [&] {
    std::vector<uint32_t> mask(masks->num_words());
    EXPECT_TRUE(state->fill_mask(mask).ok());
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < masks->vocab_size(); ++token) {
      if (testing::is_allowed(mask, token)) tokens.push_back(token);
    }
    return tokens;
  };
  EXPECT_THAT(allowed(), ::testing::ElementsAre(kOpen)) << "not its text";
  ASSERT_TRUE(state->accept(kOpen));
  EXPECT_THAT(allowed(), ::testing::ElementsAre('a'));
  ASSERT_TRUE(accept_text(*state, "a<|op> <|clos"));
  const std::vector<TokenId> inside = allowed();
  EXPECT_THAT(inside, ::testing::Contains(kClose));
  EXPECT_THAT(inside, ::testing::Contains('x'));
  for (const TokenId token : {kEnd, kOpen, kOther}) {
    EXPECT_THAT(inside, ::testing::Not(::testing::Contains(token)));
    EXPECT_FALSE(state->accept(token));
  }
  ASSERT_TRUE(accept_text(*state, "e"));
  EXPECT_FALSE(state->accept(kWord)) << "the text of a mark that is excluded";
  ASSERT_TRUE(state->accept(kClose));
  ASSERT_TRUE(accept_text(*state, "\"<|close|"));
  EXPECT_FALSE(state->accept(kClose)) << "in a string";
  EXPECT_TRUE(accept_text(*state, ">\""));
  EXPECT_TRUE(state->is_over());
}

TEST(StructuralTagTest, ATokenThatIsNotSpecialIsItsText) {
  for (const auto& masks : {testing::small_vocabulary(), std::shared_ptr<VocabularyMasks>()}) {
    Result<Automaton> automaton = compile_tag(kMarked, masks.get());
    ASSERT_TRUE(automaton.ok()) << automaton.status().to_string();
    EXPECT_TRUE(testing::matches(*automaton, R"(<|open|>ab <|c<|close|>"x")"));
    EXPECT_FALSE(testing::matches(*automaton, R"(<|open|>a<|open|><|close|>"x")"));
    EXPECT_FALSE(testing::matches(*automaton, R"(<|open|>a<|close|>b<|close|>"x")"));
  }
}

// Where it may stand is where the answer may end, whatever a form says.
TEST(StructuralTagTest, ATokenThatEndsAnAnswerIsItsText) {
  const auto masks = special_vocabulary();
  EXPECT_FALSE(masks->has_special_token("<|end|>"));
  const auto grammar = testing::token_grammar(
      compile_tag(R"({"format": {"type": "token", "token": "<|end|>"}})", masks.get()).value(),
      masks);
  const auto state = grammar->start();
  EXPECT_FALSE(state->accept(kEnd));
  EXPECT_TRUE(accept_text(*state, "<|end|>"));
  EXPECT_TRUE(state->is_over());
}

TEST(StructuralTagTest, AnyTextLacksWhatItExcludes) {
  const Automaton text =
      compile_tag(R"({"format": {"type": "any_text", "excludes": ["ab", "c"]}})", nullptr).value();
  EXPECT_TRUE(testing::matches(text, "aa b"));
  EXPECT_FALSE(testing::matches(text, "aab"));
  EXPECT_FALSE(testing::matches(text, "xc"));
  EXPECT_FALSE(testing::matches(text, "\xFF")) << "begins a special token";
  for (const char* const excludes : {"[1]", R"([""])", "3"}) {
    EXPECT_THAT(refusal_of_tag(std::string(R"({"format": {"type": "any_text", "excludes": )") +
                               excludes + "}}"),
                HasSubstr("\"excludes\" must"));
  }
  EXPECT_THAT(refusal_of_tag(R"({"format": {"type": "token"}})"), HasSubstr("\"token\" must be"));
}

}  // namespace
}  // namespace heddle::grammar

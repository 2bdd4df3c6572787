// SPDX-License-Identifier: Apache-2.0
#include "grammar/thinking_budget.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/testing/mask_fixture.h"

namespace heddle::grammar {
namespace {

using testing::is_allowed;
using testing::kEndToken;

constexpr TokenId kSpecialToken = kEndToken + 1;  // has no text

// Tokens of several bytes, which cross the borders of marks. Their ids follow kSpecialToken.
const std::vector<std::string> kPieces = {"</",         "think>",     "think>ab", "a</",
                                          "<think>a",   "<tool",      "_call>",   "_call>{\"",
                                          "l></think>", "<tool_call>"};

std::shared_ptr<VocabularyMasks> vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.resize(kSpecialToken + 1);
  tokens.insert(tokens.end(), kPieces.begin(), kPieces.end());
  return std::make_shared<VocabularyMasks>(std::move(tokens), std::vector<TokenId>{kEndToken});
}

TokenId piece(std::string_view text) {
  const auto found = std::ranges::find(kPieces, text);
  EXPECT_NE(found, kPieces.end()) << text;
  return kSpecialToken + 1 + static_cast<TokenId>(found - kPieces.begin());
}

std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
  return tokens;
}

ThinkingBudgetOptions inside(int64_t budget_tokens) {
  return {.budget_tokens = budget_tokens,
          .open = std::nullopt,
          .close = {.text = "</think>", .token = std::nullopt},
          .ending = bytes_of("so</think>")};
}

ThinkingBudgetOptions perhaps(int64_t budget_tokens) {
  ThinkingBudgetOptions options = inside(budget_tokens);
  options.open = {.text = "<think>", .token = std::nullopt};
  return options;
}

// A call is an object behind its mark.
ThinkingBudgetOptions with_calls(ThinkingBudgetOptions options) {
  options.calls = {{.text = "<tool_call>", .token = std::nullopt}};
  options.begins_call =
      [size = options.calls[0].text.size()](std::string_view text) -> std::optional<bool> {
    if (text.size() == size) return std::nullopt;
    return text[size] == '{';
  };
  return options;
}

class ThinkingBudgetTest : public ::testing::Test {
 protected:
  std::unique_ptr<ConstraintState> start(ThinkingBudgetOptions options,
                                         std::shared_ptr<const Constraint> form = nullptr) {
    budget_ = std::make_shared<const ThinkingBudget>(std::move(options), std::move(form), masks_);
    return budget_->start();
  }

  [[nodiscard]] std::vector<TokenId> allowed(ConstraintState& state) const {
    std::vector<uint32_t> mask(masks_->num_words(), ~0u);
    EXPECT_TRUE(state.fill_mask(mask).ok());
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < mask.size() * 32; ++i) {
      if (is_allowed(mask, static_cast<TokenId>(i))) tokens.push_back(static_cast<TokenId>(i));
    }
    return tokens;
  }

  [[nodiscard]] bool is_free(ConstraintState& state) const {
    return allowed(state).size() == static_cast<size_t>(masks_->vocab_size());
  }

  // Takes over what is forced, and returns it.
  [[nodiscard]] std::string forced(ConstraintState& state) const {
    std::string text;
    for (std::vector<TokenId> next = allowed(state); next.size() == 1; next = allowed(state)) {
      EXPECT_FALSE(state.accept(next[0] == 'x' ? 'y' : 'x')) << "nothing else may follow";
      EXPECT_FALSE(state.is_complete());
      EXPECT_TRUE(state.accept(next[0]));
      text += static_cast<char>(next[0]);
    }
    return text;
  }

  static void accept(ConstraintState& state, std::string_view text) {
    for (const TokenId token : bytes_of(text)) ASSERT_TRUE(state.accept(token)) << text;
  }

  std::shared_ptr<VocabularyMasks> masks_ = vocabulary();
  std::shared_ptr<const ThinkingBudget> budget_;
};

TEST_F(ThinkingBudgetTest, ReasoningThatIsTooLongIsClosed) {
  const auto state = start(inside(3));
  EXPECT_TRUE(is_free(*state));
  accept(*state, "abc");
  EXPECT_EQ(forced(*state), "so</think>");
  EXPECT_TRUE(is_free(*state));
  accept(*state, "a long answer, longer than the reasoning");
  EXPECT_TRUE(is_free(*state));
  EXPECT_TRUE(state->is_complete());
  EXPECT_FALSE(state->is_over());
}

TEST_F(ThinkingBudgetTest, NoReasoningAtAllIsClosedAtOnce) {
  const auto state = start(inside(0));
  EXPECT_EQ(forced(*state), "so</think>");
  EXPECT_TRUE(is_free(*state));
}

TEST_F(ThinkingBudgetTest, ReasoningThatEndsByItselfIsLeftAlone) {
  // As one token that is no text; as several that cross the tag's borders; in the last one allowed.
  ThinkingBudgetOptions options = inside(20);
  options.close.token = kSpecialToken;
  const auto by_token = start(options);
  accept(*by_token, "abc");
  ASSERT_TRUE(by_token->accept(kSpecialToken));
  accept(*by_token, "an answer that goes on for long");
  EXPECT_TRUE(is_free(*by_token));

  const auto by_text = start(inside(9));
  accept(*by_text, "a</think>");
  EXPECT_TRUE(is_free(*by_text));
  accept(*by_text, "an answer that goes on for long");
  EXPECT_TRUE(is_free(*by_text));

  const auto by_pieces = start(perhaps(3));
  for (const char* const text : {"<think>a", "a</", "think>ab"}) {
    ASSERT_TRUE(by_pieces->accept(piece(text)));
  }
  accept(*by_pieces, "an answer that goes on for long");
  EXPECT_TRUE(is_free(*by_pieces));
}

TEST_F(ThinkingBudgetTest, ACallInsideReasoningIsLeftWhole) {
  const auto state = start(with_calls(inside(3)));
  accept(*state, "ab");
  ASSERT_TRUE(state->accept(piece("<tool_call>")));
  EXPECT_TRUE(is_free(*state)) << "the budget is used up, but this may be a call";
  accept(*state, "{\"name\": \"f\"}");
  EXPECT_TRUE(is_free(*state));
  state->roll_back(13);
  accept(*state, "x");
  EXPECT_EQ(forced(*state), "so</think>") << "it is none";

  ThinkingBudgetOptions options = inside(3);
  options.calls = {{.text = "<|call|>", .token = kSpecialToken}};
  const auto by_token = start(options);
  ASSERT_TRUE(by_token->accept(kSpecialToken));
  accept(*by_token, "f(x=1)");
  EXPECT_TRUE(is_free(*by_token));
}

TEST_F(ThinkingBudgetTest, OnlyAnAnswerThatOpensReasoningHasABudget) {
  const auto opened = start(perhaps(2));
  accept(*opened, " \n<think>ab");
  EXPECT_EQ(forced(*opened), "so</think>");
  for (const char* const text : {"<thinner>", "Well, <think>", "think>", "</think>"}) {
    const auto state = start(perhaps(2));
    accept(*state, text);
    accept(*state, "goes on and on");
    EXPECT_TRUE(is_free(*state)) << text;
  }
  ThinkingBudgetOptions options = perhaps(2);
  options.open->token = kSpecialToken;
  const auto by_token = start(options);
  ASSERT_TRUE(by_token->accept(kSpecialToken));
  accept(*by_token, "ab");
  EXPECT_EQ(forced(*by_token), "so</think>");
}

TEST_F(ThinkingBudgetTest, AFormHoldsBehindTheReasoning) {
  Result<Automaton> automaton = compile({.kind = GrammarKind::kRegex,
                                         .text = "[0-9]+;",
                                         .free_text_end = "</think>",
                                         .free_text_begin = {}});
  ASSERT_TRUE(automaton.ok());
  const auto form = testing::token_grammar(std::move(automaton).value(), masks_);
  const auto state = start(inside(2), form);
  accept(*state, "ab");
  EXPECT_EQ(forced(*state), "so</think>");
  EXPECT_FALSE(state->accept('x'));
  accept(*state, "\n17");
  EXPECT_FALSE(state->is_complete());
  state->roll_back(3);
  EXPECT_FALSE(state->accept(';')) << "a digit comes first";
  accept(*state, "8;");
  EXPECT_TRUE(state->is_over());
}

// Where an answer of these tokens stands, found out from its beginning.
struct Naive {
  const ThinkingBudgetOptions& options;
  const VocabularyMasks& masks;

  // Whether reasoning has ended; none where a call may have begun.
  [[nodiscard]] std::optional<bool> has_ended(const std::string& reasoning) const {
    for (size_t i = 0; i < reasoning.size(); ++i) {
      const std::string rest = reasoning.substr(i);
      if (rest.starts_with(options.close.text)) return true;
      if (options.calls.empty() || !rest.starts_with(options.calls[0].text)) continue;
      const auto is_call = options.begins_call(rest);
      if (is_call != false) return is_call;
    }
    return false;
  }

  // The token that is forced next, or -1.
  [[nodiscard]] TokenId forced(const std::vector<TokenId>& tokens) const {
    std::string text;
    std::string reasoning;
    bool is_inside = !options.open;
    bool is_outside = false;
    int64_t count = 0;
    size_t num_forced = 0;
    for (const TokenId token : tokens) {
      if (is_outside) return -1;
      const std::string bytes(masks.bytes(token));
      if (!is_inside) {
        text += bytes;
        const std::string trimmed = text.substr(std::min(text.find_first_not_of(' '), text.size()));
        if (trimmed.starts_with(options.open->text)) {
          is_inside = true;
          reasoning = trimmed.substr(options.open->text.size());
          is_outside = has_ended(reasoning) == true;
        } else {
          is_outside = !options.open->text.starts_with(trimmed);
        }
      } else if (count >= options.budget_tokens && has_ended(reasoning)) {
        is_outside = ++num_forced == options.ending.size();
      } else {
        ++count;
        reasoning += bytes;
        is_outside = has_ended(reasoning) == true;
      }
    }
    const bool is_forced =
        is_inside && !is_outside && count >= options.budget_tokens && has_ended(reasoning);
    return is_forced ? options.ending[num_forced] : -1;
  }
};

TEST_F(ThinkingBudgetTest, AgreesWithANaiveModelWhateverIsTakenBack) {
  std::mt19937 random(7);
  const std::vector<std::string> texts = {"<", "think>",      "</",  "<think>", "</think>",
                                          " ", "a",           ">",   "t",       "hink>",
                                          "{", "<tool_call>", "tool"};
  int num_forced = 0;
  int num_free = 0;
  for (int round = 0; round < 400; ++round) {
    ThinkingBudgetOptions options = round % 2 == 0 ? inside(static_cast<int64_t>(random() % 6))
                                                   : perhaps(static_cast<int64_t>(random() % 6));
    if (round % 4 >= 2) options = with_calls(std::move(options));
    const auto state = start(options);
    const Naive naive{.options = options, .masks = *masks_};
    std::vector<TokenId> tokens;
    for (int step = 0; step < 60; ++step) {
      const TokenId expected = naive.forced(tokens);
      const std::vector<TokenId> next = allowed(*state);
      if (expected >= 0) {
        ASSERT_EQ(next, std::vector<TokenId>{expected});
        std::vector<TokenId> forced;
        state->forced_tokens(64, forced);
        ASSERT_LE(forced.size(), options.ending.size());
        ASSERT_TRUE(std::ranges::equal(forced, std::span(options.ending).last(forced.size())));
        ASSERT_EQ(forced.front(), expected);
        ++num_forced;
      } else {
        ASSERT_EQ(next.size(), static_cast<size_t>(masks_->vocab_size()));
        ++num_free;
      }
      if (random() % 5 == 0 && !tokens.empty()) {
        const size_t count = random() % std::min<size_t>(tokens.size(), 4) + 1;
        state->roll_back(static_cast<int64_t>(count));
        tokens.resize(tokens.size() - count);
        continue;
      }
      std::vector<TokenId> wanted = {expected};
      if (expected < 0 && random() % 2 == 0) {
        wanted = {piece(kPieces[random() % kPieces.size()])};
      } else if (expected < 0) {
        wanted = bytes_of(texts[random() % texts.size()]);
      }
      for (const TokenId token : wanted) {
        const TokenId needed = naive.forced(tokens);
        ASSERT_EQ(state->accept(token), needed < 0 || needed == token);
        if (needed >= 0 && needed != token) break;
        tokens.push_back(token);
      }
    }
  }
  EXPECT_GT(num_forced, 1000);
  EXPECT_GT(num_free, 1000);
}

}  // namespace
}  // namespace heddle::grammar

// SPDX-License-Identifier: Apache-2.0
// ThinkingBudget ends an answer's reasoning after a number of tokens: from then on only the tokens
// of the closing text are allowed, one after the other. The text after the closing tag is free, or
// follows another constraint, which must accept any text before that tag. A tool call inside the
// reasoning also ends it and stays complete: reasoning is not ended while a call may have begun.
//
// Threading: immutable; thread-safe.
// Cost of a mask: one pass over V / 32 words, in addition to the mask of the other constraint.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/constraint.h>

#include "grammar/vocabulary_masks.h"

namespace heddle::grammar {

// A mark in a text; the vocabulary may have it as one token, possibly a special token.
struct ReasoningMark {
  std::string text;
  std::optional<TokenId> token;
};

struct ThinkingBudgetOptions {
  int64_t budget_tokens = 0;  // most reasoning tokens before `ending`; >= 0

  // Mark that begins the reasoning, optionally after white space. None: the answer begins inside
  // reasoning.
  std::optional<ReasoningMark> open;
  ReasoningMark close;

  // Marks that may begin a call, and a test whether a text that begins with one is a call; nullopt:
  // more text is needed, of which the amount is bounded. Null: the mark suffices. Thread-safe.
  std::vector<ReasoningMark> calls;
  std::function<std::optional<bool>(std::string_view text)> begins_call;

  // Tokens that are forced when the budget is used up: the closing tag, optionally after a message
  // to the model. Not empty; ids must be in the vocabulary (checked).
  std::vector<TokenId> ending;
};

class ThinkingBudget : public Constraint, public std::enable_shared_from_this<ThinkingBudget> {
 public:
  // `form`: the other constraint; null: any text.
  ThinkingBudget(ThinkingBudgetOptions options, std::shared_ptr<const Constraint> form,
                 std::shared_ptr<const VocabularyMasks> masks);

  [[nodiscard]] int64_t vocab_size() const override { return masks_->vocab_size(); }

  [[nodiscard]] std::unique_ptr<ConstraintState> start() const override;

 private:
  class State;

  const ThinkingBudgetOptions options_;
  const std::shared_ptr<const Constraint> form_;
  const std::shared_ptr<const VocabularyMasks> masks_;
};

}  // namespace heddle::grammar

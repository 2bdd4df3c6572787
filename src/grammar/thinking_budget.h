// SPDX-License-Identifier: Apache-2.0
// ThinkingBudget ends an answer's reasoning after a number of tokens: from then on only the tokens
// that close it may follow, one after the other. The text after the closing tag is free, or follows
// another constraint, which must take any text before that tag. A tool call inside the
// reasoning ends it, too, and is left whole: reasoning is not ended while a call may have begun.
//
// Threading: immutable; thread-safe.
// Cost of a mask: one pass over V / 32 words, less what the other constraint takes.
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

// A mark in a text, also where the vocabulary keeps it as one token, which need not be text.
struct ReasoningMark {
  std::string text;
  std::optional<TokenId> token;
};

struct ThinkingBudgetOptions {
  int64_t budget_tokens = 0;  // reasoning tokens before `ending`; >= 0

  // Mark that begins the reasoning, optionally after white space. None: the answer begins inside.
  std::optional<ReasoningMark> open;
  ReasoningMark close;

  // Marks that may begin a call, and a test whether a text that begins with one is a call; nullopt:
  // more text is needed, but only boundedly. Null: the mark suffices. Thread-safe.
  std::vector<ReasoningMark> calls;
  std::function<std::optional<bool>(std::string_view text)> begins_call;

  // Tokens that are forced once the budget is used up: the closing tag, optionally after a message
  // to the model. Not empty, ids within the vocabulary (checked).
  std::vector<TokenId> ending;
};

class ThinkingBudget : public Constraint, public std::enable_shared_from_this<ThinkingBudget> {
 public:
  // `form` may be null: any text.
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

// SPDX-License-Identifier: Apache-2.0
// TextWriter grows a string under a Budget: what a filter or a captured block writes is counted
// while it is written, so that a small template cannot build an enormous text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <heddle/status.h>

#include "chat/limits.h"
#include "chat/value.h"

namespace heddle::chat {

class TextWriter {
 public:
  explicit TextWriter(Budget* budget) : budget_(budget) {}

  ~TextWriter() { budget_->release(text_.size()); }

  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;

  // Error: kInvalidArgument when the budget is used up; nothing is appended then.
  Status append(std::string_view piece) {
    HEDDLE_RETURN_IF_ERROR(budget_->fits(piece.size()));
    HEDDLE_RETURN_IF_ERROR(budget_->step(1 + static_cast<int64_t>(piece.size() / 64)));
    budget_->allocate(piece.size());
    text_ += piece;
    return {};
  }

  // Appends `count` copies.
  Status repeat(std::string_view piece, int64_t count) {
    const auto copies = static_cast<size_t>(std::max<int64_t>(count, 0));
    size_t bytes = 0;
    if (__builtin_mul_overflow(piece.size(), copies, &bytes)) bytes = static_cast<size_t>(-1);
    HEDDLE_RETURN_IF_ERROR(budget_->fits(bytes));
    if (bytes == 0) return {};
    HEDDLE_RETURN_IF_ERROR(budget_->touch(bytes));
    budget_->allocate(bytes);
    text_.reserve(text_.size() + bytes);
    for (size_t i = 0; i < copies; ++i) text_ += piece;
    return {};
  }

  [[nodiscard]] const std::string& text() const { return text_; }

  [[nodiscard]] Budget* budget() const { return budget_; }

  [[nodiscard]] std::string take() {
    budget_->release(text_.size());
    std::string text = std::move(text_);
    text_.clear();
    return text;
  }

  // The text as a value; the writer is empty afterwards.
  Result<Value> finish() { return make_text(budget_, take()); }

 private:
  Budget* budget_;
  std::string text_;
};

}  // namespace heddle::chat

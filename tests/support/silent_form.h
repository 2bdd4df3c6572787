// SPDX-License-Identifier: Apache-2.0
// SilentForm: the form that it wraps, without ConstraintState::forced_tokens(): every token of an
// answer takes a step of its own.
//
// Threading: as Constraint.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include <heddle/constraint.h>

namespace heddle::testing {

class SilentForm final : public Constraint {
 public:
  explicit SilentForm(std::shared_ptr<const Constraint> form) : form_(std::move(form)) {}

  [[nodiscard]] int64_t vocab_size() const override { return form_->vocab_size(); }

  [[nodiscard]] std::unique_ptr<ConstraintState> start() const override {
    return std::make_unique<State>(form_->start());
  }

 private:
  class State final : public ConstraintState {
   public:
    explicit State(std::unique_ptr<ConstraintState> form) : form_(std::move(form)) {}

    [[nodiscard]] bool accept(TokenId token) override { return form_->accept(token); }

    [[nodiscard]] bool accept_text(TokenId token) override { return form_->accept_text(token); }

    void roll_back(int64_t count) override { form_->roll_back(count); }

    [[nodiscard]] bool is_complete() const override { return form_->is_complete(); }

    [[nodiscard]] bool is_over() const override { return form_->is_over(); }

    [[nodiscard]] Status fill_mask(std::span<uint32_t> mask) override {
      return form_->fill_mask(mask);
    }

    [[nodiscard]] Status fill_text_mask(std::span<uint32_t> mask) override {
      return form_->fill_text_mask(mask);
    }

   private:
    const std::unique_ptr<ConstraintState> form_;
  };

  const std::shared_ptr<const Constraint> form_;
};

}  // namespace heddle::testing

// SPDX-License-Identifier: Apache-2.0
// ForcingForm: a form that by turns leaves an answer free, forces a letter, and leaves the choice
// between two letters of which it takes one for forced. Which of them depends on all tokens so far.
//
// Threading: as Constraint.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <heddle/constraint.h>

#include "dice.h"

namespace heddle::oracle {

class ForcingForm final : public Constraint {
 public:
  // Letters are the tokens below `num_letters`, at least two; free answers have those below
  // `num_tokens`.
  ForcingForm(uint64_t seed, TokenId num_letters, TokenId num_tokens, int64_t vocab_size)
      : seed_(seed), num_letters_(num_letters), num_tokens_(num_tokens), vocab_size_(vocab_size) {}

  [[nodiscard]] int64_t vocab_size() const override { return vocab_size_; }

  [[nodiscard]] std::unique_ptr<ConstraintState> start() const override;

 private:
  class State;

  const uint64_t seed_;
  const TokenId num_letters_;
  const TokenId num_tokens_;
  const int64_t vocab_size_;
};

class ForcingForm::State final : public ConstraintState {
 public:
  explicit State(const ForcingForm& form) : form_(form), marks_{form.seed_} {}

  [[nodiscard]] bool accept(TokenId token) override {
    if (!allows(marks_.back(), token)) return false;
    marks_.push_back(behind(marks_.back(), token));
    return true;
  }

  void roll_back(int64_t count) override {
    marks_.resize(marks_.size() - static_cast<size_t>(count));
  }

  [[nodiscard]] bool is_complete() const override { return kind(marks_.back()) == Kind::kFree; }

  [[nodiscard]] bool is_over() const override { return false; }

  [[nodiscard]] Status fill_mask(std::span<uint32_t> mask) override {
    for (size_t word = 0; word < mask.size(); ++word) mask[word] = 0;
    for (TokenId token = 0; token < form_.num_tokens_; ++token) {
      if (!allows(marks_.back(), token)) continue;
      const auto bit = static_cast<size_t>(token);
      mask[bit / 32] |= 1u << (bit % 32);
    }
    return {};
  }

  void forced_tokens(int64_t most, std::vector<TokenId>& tokens) override {
    uint64_t mark = marks_.back();
    for (int64_t i = 0; i < most && kind(mark) != Kind::kFree; ++i) {
      tokens.push_back(letter(mark));
      mark = behind(mark, tokens.back());
    }
  }

 private:
  enum class Kind { kFree, kForced, kChoice };

  static Kind kind(uint64_t mark) {
    const uint64_t turn = mark % 8;
    return turn < 2 ? Kind::kFree : turn == 2 ? Kind::kChoice : Kind::kForced;
  }

  [[nodiscard]] TokenId letter(uint64_t mark) const {
    return static_cast<TokenId>((mark >> 8) % static_cast<uint64_t>(form_.num_letters_));
  }

  [[nodiscard]] bool allows(uint64_t mark, TokenId token) const {
    if (token < 0 || token >= form_.num_tokens_) return false;
    if (kind(mark) == Kind::kFree || token == letter(mark)) return true;
    return kind(mark) == Kind::kChoice && token == (letter(mark) + 1) % form_.num_letters_;
  }

  static uint64_t behind(uint64_t mark, TokenId token) {
    return Dice(mark ^ (static_cast<uint64_t>(token) << 48)).next();
  }

  const ForcingForm& form_;
  std::vector<uint64_t> marks_;  // of the tokens so far; the last one says what may follow
};

inline std::unique_ptr<ConstraintState> ForcingForm::start() const {
  return std::make_unique<State>(*this);
}

}  // namespace heddle::oracle

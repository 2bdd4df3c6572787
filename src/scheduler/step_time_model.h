// SPDX-License-Identifier: Apache-2.0
// StepTimeModel: predicts how long a step takes, fitted to the steps measured so far:
//
//   seconds = fixed + per_token * new tokens + per_attended * attended tokens
//
// A new token attends to itself and all tokens before it. The terms stand for the three costs of a
// step: reading the weights, multiplying with them, and attention.
//
// The last 64 steps with prompt tokens and the last 64 without are remembered separately, so that
// the cost of prompts is not forgotten while only streams run. The fit minimises the squared
// relative errors of all of them; no coefficient is negative.
//
// Threading: thread-confined. Cost: add() O(1); fit() some microseconds, for the 128 steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::scheduler {

// The amount of work in a step.
struct StepWork {
  int64_t new_tokens = 0;
  double attended_tokens = 0;

  // Adds `num_tokens` new tokens that follow `context_tokens` others.
  void add(int64_t num_tokens, int64_t context_tokens);
};

class StepTimeModel {
 public:
  static constexpr size_t kRemembered = 64;

  // Records how long a step of at least one token took. `prefills`: it computed prompt tokens.
  void add(const StepWork& work, bool prefills, double seconds);

  // Updates the coefficients with the steps added so far.
  void fit();

  // Whether steps with prompt tokens had been recorded at the last fit().
  [[nodiscard]] bool knows_prefill() const { return knows_prefill_; }

  [[nodiscard]] double seconds(const StepWork& work) const;

  // Additional time of a step for `num_tokens` more tokens that follow `context_tokens` others.
  [[nodiscard]] double added_seconds(int64_t num_tokens, int64_t context_tokens) const;

  // How many tokens after `context_tokens` others can be added within `seconds`; at most `most`.
  [[nodiscard]] int64_t tokens_within(double seconds, int64_t context_tokens, int64_t most) const;

 private:
  static constexpr size_t kTerms = 3;
  using Terms = std::array<double, kTerms>;  // coefficients: fixed, per new token, per attended
                                             // token

  struct Step {
    Terms terms{};
    double seconds = 0;
  };

  struct Memory {
    std::array<Step, kRemembered> steps;
    size_t count = 0;
    size_t next = 0;
  };

  Memory prefill_;
  Memory decode_;
  Terms coefficients_{};
  bool knows_prefill_ = false;
};

}  // namespace heddle::scheduler

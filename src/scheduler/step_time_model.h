// SPDX-License-Identifier: Apache-2.0
// StepTimeModel: how long a step takes, learned from the steps there were:
//
//   seconds = fixed + per_token * new tokens + per_attended * attended tokens
//
// A new token attends itself and everything before it. The three terms are what a step consists of:
// reading the weights, multiplying them, attention.
//
// The last 64 steps with prompt tokens are remembered and the last 64 without, apart from each
// other: however long only streams run, what prompts cost is not forgotten. Of both together the
// squares of the relative errors are least; no coefficient is negative.
//
// Threading: thread-confined. Cost: add() O(1); fit() some microseconds, for the 128 steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::scheduler {

// The work of a step.
struct StepWork {
  int64_t new_tokens = 0;
  double attended_tokens = 0;

  // `num_tokens` more, with `context_tokens` before them.
  void add(int64_t num_tokens, int64_t context_tokens);
};

class StepTimeModel {
 public:
  static constexpr size_t kRemembered = 64;

  // Records how long a step of at least one token took. `prefills`: some were prompt tokens.
  void add(const StepWork& work, bool prefills, double seconds);

  // Takes account of the steps added so far.
  void fit();

  // As of the last fit().
  [[nodiscard]] bool knows_prefill() const { return knows_prefill_; }

  [[nodiscard]] double seconds(const StepWork& work) const;

  // The time that `num_tokens` more with `context_tokens` before them add to a step.
  [[nodiscard]] double added_seconds(int64_t num_tokens, int64_t context_tokens) const;

  // How many tokens can be added within `seconds`, at most `most`.
  [[nodiscard]] int64_t tokens_within(double seconds, int64_t context_tokens, int64_t most) const;

 private:
  static constexpr size_t kTerms = 3;
  using Terms = std::array<double, kTerms>;  // fixed, per token, per attended token

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

// SPDX-License-Identifier: Apache-2.0
// NewTokenRatio: which part of the output that running requests may still draw is set aside for
// them when others are admitted. Most requests end early, so it begins below 1 and falls with every
// decode step that finds its pages, and rises when a guess was wrong and somebody was retracted.
//
// Threading: thread-confined. Cost: O(1).
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::scheduler {

// Nobody counts on more output of one request than this: limits of 2^30 are common and mean "until
// it ends".
constexpr int64_t kNewTokensClip = 4096;

// min(max_new_tokens - output_tokens, clip), at least 0.
[[nodiscard]] constexpr int64_t new_tokens_left(int64_t max_new_tokens, int64_t output_tokens) {
  return std::clamp<int64_t>(max_new_tokens - output_tokens, 0, kNewTokensClip);
}

class NewTokenRatio {
 public:
  // `conservativeness` > 0 (checked): 1 begins at 0.7.
  explicit NewTokenRatio(double conservativeness);

  [[nodiscard]] double value() const { return value_; }

  [[nodiscard]] double initial() const { return initial_; }

  [[nodiscard]] double minimum() const { return minimum_; }

  // Tokens to set aside for a running request.
  [[nodiscard]] double reserve(int64_t max_new_tokens, int64_t output_tokens) const {
    return static_cast<double>(new_tokens_left(max_new_tokens, output_tokens)) * value_;
  }

  // A decode step ran without retraction.
  void decay();

  // After a retraction, from the `num_running` requests that remain, at least 1 (checked): their
  // output so far and their limits, summed. The ratio never falls here: an overflow is no reason
  // for optimism.
  void after_retraction(int64_t sum_output_tokens, int64_t sum_max_new_tokens, int64_t num_running);

  // What after_retraction() compares with, and the reference takes as it is.
  [[nodiscard]] static double estimate(int64_t sum_output_tokens, int64_t sum_max_new_tokens,
                                       int64_t num_running);

  // The engine is idle.
  void reset() { value_ = initial_; }

 private:
  double initial_;
  double minimum_;
  double step_;
  double value_;
};

}  // namespace heddle::scheduler

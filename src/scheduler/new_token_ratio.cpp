// SPDX-License-Identifier: Apache-2.0
#include "scheduler/new_token_ratio.h"

#include "core/check.h"

namespace heddle::scheduler {

namespace {

// The numbers SGLang came to with public chat traffic; kept so that both behave alike.
constexpr double kInitial = 0.7;
constexpr double kMinimumFactor = 0.14;
constexpr double kDecaySteps = 600;
constexpr int64_t kRetractionSteps =
    20;  // tokens of every request that a retraction makes room for

}  // namespace

NewTokenRatio::NewTokenRatio(double conservativeness)
    : initial_(std::min(kInitial * conservativeness, 1.0)),
      minimum_(std::min(kMinimumFactor * initial_, 1.0)),
      step_((initial_ - minimum_) / kDecaySteps),
      value_(initial_) {
  HEDDLE_CHECK_LT(0, conservativeness);
}

void NewTokenRatio::decay() { value_ = std::max(value_ - step_, minimum_); }

double NewTokenRatio::estimate(int64_t sum_output_tokens, int64_t sum_max_new_tokens,
                               int64_t num_running) {
  HEDDLE_CHECK_GE(num_running, 1);
  const auto soon = static_cast<double>(sum_output_tokens + kRetractionSteps * num_running);
  return std::min(1.0, soon / static_cast<double>(sum_max_new_tokens + 1));
}

void NewTokenRatio::after_retraction(int64_t sum_output_tokens, int64_t sum_max_new_tokens,
                                     int64_t num_running) {
  value_ = std::max(value_, estimate(sum_output_tokens, sum_max_new_tokens, num_running));
}

}  // namespace heddle::scheduler

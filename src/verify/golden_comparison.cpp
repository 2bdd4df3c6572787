// SPDX-License-Identifier: Apache-2.0
#include "verify/golden_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"

namespace heddle::verify {

namespace {

constexpr double kNearTie = 1e-3;

double relative_error(const float* got, const float* want, int64_t count) {
  double delta = 0;
  double norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    delta += difference * difference;
    norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  if (!std::isfinite(delta)) return INFINITY;
  return norm > 0 ? std::sqrt(delta / norm) : std::sqrt(delta);
}

struct Best {
  TokenId token = 0;
  double margin = 0;  // largest logit minus the second largest
};

Best best_of(const float* logits, int64_t count) {
  Best best;
  float first = logits[0];
  float second = -INFINITY;
  for (int64_t i = 1; i < count; ++i) {
    if (logits[i] > first) {
      second = first;
      first = logits[i];
      best.token = static_cast<TokenId>(i);
    } else {
      second = std::max(second, logits[i]);
    }
  }
  best.margin = static_cast<double>(first) - static_cast<double>(second);
  return best;
}

}  // namespace

GoldenComparison::GoldenComparison(const GoldenCase& golden, const runner::ForwardPass& pass,
                                   std::vector<float>& first_logits)
    : golden_(golden), pass_(pass), first_logits_(first_logits), is_first_(first_logits.empty()) {
  if (is_first_) {
    first_logits_.resize(
        static_cast<size_t>(golden.num_compared_tokens() * pass.config().vocab_size));
  }
  if (golden.hidden_states) {
    num_layers_ = std::min<int64_t>(golden.hidden_states->shape()[0],
                                    static_cast<int64_t>(pass.num_hidden_states()));
  }
}

void GoldenComparison::take_rows(int64_t first_row, int64_t first_token, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    take_logits(first_token + i, pass_.logits().row<float>(first_row + i));
    if (first_token + i < golden_.num_tokens()) {
      compare_hidden_states(first_row + i, first_token + i);
    }
  }
}

void GoldenComparison::take_logits(int64_t token, const float* logits) {
  HEDDLE_CHECK_LT(token, golden_.num_compared_tokens());
  const int64_t V = pass_.config().vocab_size;
  if (token < golden_.num_tokens() && token % golden_.logits_row_step == 0) {
    const float* want = golden_.logits.view().row<float>(token / golden_.logits_row_step);
    const double error = relative_error(logits, want, V);
    result_.logits_error = std::max(result_.logits_error, error);
    squared_errors_ += error * error;
    result_.mean_error = std::sqrt(squared_errors_ / static_cast<double>(++result_.num_recorded));
  }
  compare_choice(token, logits);
  float* first = first_logits_.data() + token * V;
  const size_t num_bytes = static_cast<size_t>(V) * sizeof(float);
  if (is_first_) {
    std::memcpy(first, logits, num_bytes);
  } else if (std::memcmp(first, logits, num_bytes) != 0) {
    result_.same_bits = false;
    result_.plain_error = std::max(result_.plain_error, relative_error(logits, first, V));
  }
  ++result_.num_rows;
}

void GoldenComparison::compare_hidden_states(int64_t row, int64_t token) {
  for (int64_t layer = 0; layer < num_layers_; ++layer) {
    const int64_t T = golden_.hidden_states->shape()[1];
    const int64_t H = golden_.hidden_states->shape()[2];
    const float* want = golden_.hidden_states->view().as<float>() + (layer * T + token) * H;
    const float* got = pass_.hidden_state(static_cast<size_t>(layer)).row<float>(row);
    result_.hidden_error = std::max(result_.hidden_error, relative_error(got, want, H));
  }
}

// Compares the model's next token with the reference's, if the reference has one.
void GoldenComparison::compare_choice(int64_t token, const float* logits) {
  const int64_t index = token - (golden_.num_tokens() - 1);
  if (index < 0 || index >= std::ssize(golden_.greedy)) return;
  const Best best = best_of(logits, pass_.config().vocab_size);
  if (best.token == golden_.greedy[static_cast<size_t>(index)]) return;
  ++(best.margin < kNearTie ? result_.near_ties : result_.greedy_wrong);
}

}  // namespace heddle::verify

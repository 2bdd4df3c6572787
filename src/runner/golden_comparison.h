// SPDX-License-Identifier: Apache-2.0
// GoldenComparison: what one way of feeding a golden case got wrong, gathered row by row as steps
// compute them.
//
// Tokens are numbered from the first of the prompt on; those from GoldenCase::ids.size() on are the
// reference's greedy continuation. Rows may come in any order, and some may never come, because
// they were in a cache.
//
// Threading: confined.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/forward_pass.h"
#include "runner/golden_cases.h"

namespace heddle::runner {

struct CaseResult {
  double logits_error = 0;  // largest ||delta|| / ||reference|| of a row
  double hidden_error = 0;  // likewise; both 0 where the golden has no such row
  double plain_error = 0;   // likewise, against the logits of the first feeding, which has all rows
  int64_t greedy_wrong = 0;  // tokens that differ though no near tie excuses it
  int64_t near_ties = 0;     // tokens that differ where the two best logits are closer than 1e-3
  bool same_bits = true;     // logits equal those of the first feeding, bit for bit
  int64_t num_rows = 0;      // that were compared
};

class GoldenComparison {
 public:
  // `first_logits` [T + continuation, V] is filled by the first comparison of a case, which takes
  // every row, and compared against by the others. All three outlive the comparison.
  GoldenComparison(const GoldenCase& golden, const ForwardPass& pass,
                   std::vector<float>& first_logits);

  // The last run of the pass had `count` tokens from `first_token` on in its rows from `first_row`
  // on, with the logits of all rows.
  void take_rows(int64_t first_row, int64_t first_token, int64_t count);

  // The logits after `token`, from elsewhere.
  void take_logits(int64_t token, const float* logits);

  [[nodiscard]] const CaseResult& result() const { return result_; }

 private:
  void compare_hidden_states(int64_t row, int64_t token);
  void compare_choice(int64_t token, const float* logits);

  const GoldenCase& golden_;
  const ForwardPass& pass_;
  std::vector<float>& first_logits_;
  bool is_first_;
  int64_t num_layers_ = 0;  // whose hidden states both sides have
  CaseResult result_;
};

}  // namespace heddle::runner

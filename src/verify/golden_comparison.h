// SPDX-License-Identifier: Apache-2.0
// GoldenComparison: counts the differences between a golden case and a model, row by row as steps
// compute them, for one way of feeding the case.
//
// Tokens are numbered from the first of the prompt on; those from GoldenCase::ids.size() on are the
// reference's greedy continuation. Rows may come in any order. Rows that a cache has saved never
// come.
//
// Threading: confined.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/program/forward_pass.h"
#include "verify/golden_cases.h"

namespace heddle::verify {

struct CaseResult {
  double logits_error = 0;   // largest ||delta|| / ||reference|| of a row; 0 without a recorded row
  double mean_error = 0;     // root of the mean of the squares of these
  int64_t num_recorded = 0;  // rows in the two
  double hidden_error = 0;   // as logits_error, for hidden states
  // As logits_error, against the logits of the first feeding instead of the reference.
  double plain_error = 0;
  int64_t greedy_wrong = 0;  // tokens that differ, without near ties
  int64_t near_ties = 0;     // tokens that differ although the two best logits are closer than 1e-3
  bool same_bits = true;     // logits equal those of the first feeding, bit for bit
  int64_t num_rows = 0;      // rows compared
};

class GoldenComparison {
 public:
  // `first_logits` [T + continuation, V] is empty before the first comparison of a case, which
  // takes every row and fills it; later comparisons compare with it. All three outlive the
  // comparison.
  GoldenComparison(const GoldenCase& golden, const runner::ForwardPass& pass,
                   std::vector<float>& first_logits);

  // Compares `count` rows of the pass's last run, which computed the logits of all its rows: row
  // `first_row` belongs to `first_token`, the others follow it.
  void take_rows(int64_t first_row, int64_t first_token, int64_t count);

  // Compares the logits after `token`, wherever they were computed.
  void take_logits(int64_t token, const float* logits);

  [[nodiscard]] const CaseResult& result() const { return result_; }

 private:
  void compare_hidden_states(int64_t row, int64_t token);
  void compare_choice(int64_t token, const float* logits);

  const GoldenCase& golden_;
  const runner::ForwardPass& pass_;
  std::vector<float>& first_logits_;
  bool is_first_;
  double squared_errors_ = 0;  // sum of squared errors over the rows of mean_error
  int64_t num_layers_ = 0;     // layers whose hidden states both the case and the pass have
  CaseResult result_;
};

}  // namespace heddle::verify

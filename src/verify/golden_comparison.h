// SPDX-License-Identifier: Apache-2.0
// GoldenComparison: counts the differences between a golden case and a model, row by row as steps
// compute them, for one way of feeding the case.
//
// Tokens are numbered from the first token of the prompt; those from GoldenCase::ids.size() on are
// the reference's greedy continuation. Rows may be passed in any order. Rows that a cache hit makes
// unnecessary are not computed and not compared.
//
// Threading: confined.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/program/forward_pass.h"
#include "verify/golden_cases.h"

namespace heddle::verify {

struct CaseResult {
  double logits_error = 0;   // largest ||delta|| / ||reference|| of any row; 0 if no row was
                             // recorded
  double mean_error = 0;     // root mean square of the errors of all recorded rows
  int64_t num_recorded = 0;  // number of rows in logits_error and mean_error
  double hidden_error = 0;   // as logits_error, but of hidden states
  // As logits_error, against the logits of the first feeding instead of the reference.
  double plain_error = 0;
  int64_t greedy_wrong = 0;  // number of tokens that differ from the reference, near ties not
                             // counted
  int64_t near_ties = 0;     // differing tokens for which the two best logits are closer than 1e-3
  bool same_bits = true;     // all logits equal those of the first feeding, bit for bit
  int64_t num_rows = 0;      // number of compared rows
};

class GoldenComparison {
 public:
  // `first_logits` [T + continuation, V] is empty before the first comparison of a case, which must
  // compare every row and fills it; later comparisons use it as a second reference. All three
  // arguments outlive the comparison.
  GoldenComparison(const GoldenCase& golden, const runner::ForwardPass& pass,
                   std::vector<float>& first_logits);

  // Compares `count` rows of the pass's last run, which must have computed the logits of all its
  // rows. Row `first_row` belongs to token `first_token`, the following rows to the following
  // tokens.
  void take_rows(int64_t first_row, int64_t first_token, int64_t count);

  // Compares the logits that follow `token`; they need not come from the pass's last run.
  void take_logits(int64_t token, const float* logits);

  [[nodiscard]] const CaseResult& result() const { return result_; }

 private:
  void compare_hidden_states(int64_t row, int64_t token);
  void compare_choice(int64_t token, const float* logits);

  const GoldenCase& golden_;
  const runner::ForwardPass& pass_;
  std::vector<float>& first_logits_;
  bool is_first_;
  double squared_errors_ = 0;  // sum of the squared errors from which mean_error is computed
  int64_t num_layers_ = 0;     // number of layers whose hidden states the case and the pass have
  CaseResult result_;
};

}  // namespace heddle::verify

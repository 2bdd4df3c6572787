// SPDX-License-Identifier: Apache-2.0
// Golden cases: token ids with the logits, hidden states and greedy continuation a reference
// computed for them, and the comparison of a model with them. `heddle verify` and the whole-model
// tests use it.
//
// A golden file is a safetensors file with, per case: NAME.input_ids [T] i32, NAME.logits [rows, V]
// f32 (every row, or every k-th from the first on), and where present NAME.hidden_states [layers +
// 1, T, H] f32 (the last one after the final norm) and NAME.greedy [n] i32.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <heddle/request.h>

#include "checkpoint/safetensors.h"
#include "runner/forward_pass.h"

namespace heddle::runner {

struct GoldenCase {
  std::string name;
  std::vector<TokenId> ids;
  Tensor logits;
  int64_t logits_row_step = 1;  // row i of `logits` belongs to token i * step
  std::optional<Tensor> hidden_states;
  std::vector<TokenId> greedy;
};

// Error: kDataLoss, naming the case and the tensor that does not fit.
Result<std::vector<GoldenCase>> read_golden_cases(const checkpoint::SafetensorsFile& file);

// How a case's tokens reach the model.
struct Feeding {
  std::string name;             // "whole", "chunks of 17", "with strangers"
  int64_t chunk = 0;            // tokens a step; 0: all at once
  bool with_strangers = false;  // two other sequences share every step
};

// Whole, chunks of 1, 17, 64 and 65, and batched with strangers.
std::vector<Feeding> all_feedings();

struct CaseResult {
  double logits_error = 0;   // largest ||delta|| / ||reference|| of a row
  double hidden_error = 0;   // likewise; 0 where the golden has none or not all at once
  int64_t greedy_wrong = 0;  // tokens that differ though no near tie excuses it
  int64_t near_ties = 0;     // tokens that differ where the two best logits are closer than 1e-3
  bool same_bits = true;     // logits equal those of the first feeding, bit for bit
};

// Runs one case in one way. `first_logits` [T, V] is filled by the first call of a case and
// compared against by the others. The pass must take T + 64 tokens and logit rows a step, with
// hidden states collected.
Result<CaseResult> check_case(ForwardPass& pass, const GoldenCase& golden, const Feeding& feeding,
                              std::vector<float>& first_logits);

}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
// The plain ways to feed a golden case to a model, without a scheduler or a cache.
//
// Threading: confined.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/program/forward_pass.h"
#include "verify/golden_comparison.h"

namespace heddle::verify {

// A way for a case's tokens to reach the model.
struct Feeding {
  std::string name;          // "whole", "chunks of 17", "with others"
  int64_t chunk = 0;         // tokens a step; 0: all at once
  bool with_others = false;  // two other sequences share every step
};

// Whole, chunks of 1, 17, 64 and 65, and in steps shared with two other sequences.
std::vector<Feeding> all_feedings();

// Feeds the prompt of one case in one way, then the reference's continuation. `first_logits`: see
// GoldenComparison; the first call for a case fills it. The pass must take T + 64 tokens and logit
// rows a step and collect hidden states. Error: as check_fits(), or that of a step.
Result<CaseResult> check_case(runner::ForwardPass& pass, const GoldenCase& golden,
                              const Feeding& feeding, std::vector<float>& first_logits);

}  // namespace heddle::verify

// SPDX-License-Identifier: Apache-2.0
// The plain ways to feed a golden case to a model, without a scheduler or a cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/forward_pass.h"
#include "runner/golden_comparison.h"

namespace heddle::runner {

// How a case's tokens reach the model.
struct Feeding {
  std::string name;             // "whole", "chunks of 17", "with strangers"
  int64_t chunk = 0;            // tokens a step; 0: all at once
  bool with_strangers = false;  // two other sequences share every step
};

// Whole, chunks of 1, 17, 64 and 65, and batched with strangers.
std::vector<Feeding> all_feedings();

// Runs one case in one way and along the reference's continuation. `first_logits`: see
// GoldenComparison; the first call of a case fills it. The pass must take T + 64 tokens and logit
// rows a step, with hidden states collected.
Result<CaseResult> check_case(ForwardPass& pass, const GoldenCase& golden, const Feeding& feeding,
                              std::vector<float>& first_logits);

}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
// Feeds a golden case to a model directly, without a scheduler or a cache.
//
// Threading: confined.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/program/forward_pass.h"
#include "verify/golden_comparison.h"

namespace heddle::verify {

// How the tokens of a case are divided into steps.
struct Feeding {
  std::string name;          // name in reports: "whole", "chunks of 17", "with others"
  int64_t chunk = 0;         // tokens per step; 0: all tokens in one step
  bool with_others = false;  // every step also processes two other sequences
};

// The feedings: whole, in chunks of 1, 17, 64 and 65, and in steps shared with two other sequences.
std::vector<Feeding> all_feedings();

// Feeds the prompt of one case as `feeding` says, then the reference's continuation.
// `first_logits`: see GoldenComparison; the first call for a case fills it. The pass must accept T
// + 64 tokens and logit rows a step and collect hidden states. Error: as check_fits(), or that of a
// step.
Result<CaseResult> check_case(runner::ForwardPass& pass, const GoldenCase& golden,
                              const Feeding& feeding, std::vector<float>& first_logits);

}  // namespace heddle::verify

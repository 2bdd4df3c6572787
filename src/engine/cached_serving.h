// SPDX-License-Identifier: Apache-2.0
// Golden cases served from the prefix cache: one request leaves a beginning of the case behind, a
// second one asks for the case and finds it. Both go through the engine, its scheduler and its
// cache as requests of a server do; only who computes the steps is a runner whose logits can be
// seen (runner/watched_runner.h).
//
// Threading: confined. Cost: an engine with pools of its own for each feeding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/forward_pass.h"
#include "runner/golden_comparison.h"

namespace heddle::engine {

struct CachedFeeding {
  std::string name;             // "cached to a fork"
  int64_t shared_tokens = 0;    // the first request begins with so many tokens of the case
  int64_t foreign_tokens = 0;   // and goes on with so many others
  int64_t reusable_tokens = 0;  // that the case must find; maybe none, for want of a state or page
};

// From within a page, from its end, where the first request goes on otherwise, and all of the case.
// What a case is too short for is left out.
std::vector<CachedFeeding> cached_feedings(const runner::ForwardPass& pass,
                                           const runner::GoldenCase& golden);

struct CachedResult {
  runner::CaseResult rows;    // of the tokens computed after the hit
  int64_t cached_tokens = 0;  // of the case, that were not computed again
  bool exact_repeat = false;  // not even its last token was
};

// Serves a case and draws greedily as far as the draws are the reference's: behind another token
// nothing can be compared. `first_logits` is that of runner::check_case(), filled by the plain
// feeding. The pass as there, with head_alone.
Result<CachedResult> check_cached_case(runner::ForwardPass& pass, const runner::GoldenCase& golden,
                                       const CachedFeeding& feeding,
                                       std::vector<float>& first_logits);

}  // namespace heddle::engine

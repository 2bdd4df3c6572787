// SPDX-License-Identifier: Apache-2.0
// Golden cases served from the prefix cache: a first request leaves the beginning of the case in
// the cache, a second one asks for the case and finds it there. Both pass through an engine with
// its scheduler and cache, as a server's requests do; its runner is a WatchedRunner.
//
// Threading: confined. Cost: an engine with pools of its own for each feeding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/program/forward_pass.h"
#include "verify/golden_comparison.h"

namespace heddle::verify {

struct CachedFeeding {
  std::string name;             // "cached to a fork"
  int64_t shared_tokens = 0;    // tokens of the case that the first request begins with
  int64_t foreign_tokens = 0;   // other tokens that follow them in the first request
  int64_t reusable_tokens = 0;  // tokens that the case must find; 0 where no state or page is kept
};

// Feedings whose hits end within a page, at a page's end, where the first request diverges, and at
// the end of the case; those that need a longer case are omitted.
std::vector<CachedFeeding> cached_feedings(const runner::ForwardPass& pass,
                                           const GoldenCase& golden);

struct CachedResult {
  CaseResult rows;            // comparison of the rows computed after the hit
  int64_t cached_tokens = 0;  // tokens of the case that were not computed again
  // No token was computed again: the first draw used a kept hidden vector.
  bool exact_repeat = false;
};

// Serves a case and compares as long as greedy draws are the reference's: after another token the
// rows belong to another text. `first_logits` as check_case() has filled it. The pass as for
// check_case(), with head_alone. Error: as check_fits(), or that of the engine.
Result<CachedResult> check_cached_case(runner::ForwardPass& pass, const GoldenCase& golden,
                                       const CachedFeeding& feeding,
                                       std::vector<float>& first_logits);

}  // namespace heddle::verify

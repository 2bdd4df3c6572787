// SPDX-License-Identifier: Apache-2.0
// Golden cases that are served from the prefix cache. A first request puts the beginning of the
// case into the cache; a second request for the whole case reuses it. Both pass through an engine
// with scheduler and cache, like a server's requests; the engine's runner is a WatchedRunner.
//
// Threading: confined. Cost: each feeding creates an engine with its own pools.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/program/forward_pass.h"
#include "verify/golden_comparison.h"

namespace heddle::verify {

struct CachedFeeding {
  std::string name;             // name in reports: "cached to a fork"
  int64_t shared_tokens = 0;    // number of the case's tokens with which the first request begins
  int64_t foreign_tokens = 0;   // number of other tokens that follow them in the first request
  int64_t reusable_tokens = 0;  // number of tokens that the case must find in the cache; 0 if the
                                // model keeps no states or pages
};

// Feedings whose cache hits end within a page, at the end of a page, where the first request
// diverges, and at the end of the case. Feedings that need a longer case are omitted.
std::vector<CachedFeeding> cached_feedings(const runner::ForwardPass& pass,
                                           const GoldenCase& golden);

struct CachedResult {
  CaseResult rows;            // comparison of the rows computed after the hit
  int64_t cached_tokens = 0;  // number of the case's tokens that were not computed again
  // No token was computed again: the first token was drawn from a cached hidden vector.
  bool exact_repeat = false;
};

// Serves a case and compares its rows as long as greedily drawn tokens equal the reference's: after
// a different token the rows belong to another text. `first_logits` must come from check_case().
// The pass must be one that check_case() accepts, with head_alone. Error: as check_fits(), or that
// of the engine.
Result<CachedResult> check_cached_case(runner::ForwardPass& pass, const GoldenCase& golden,
                                       const CachedFeeding& feeding,
                                       std::vector<float>& first_logits);

}  // namespace heddle::verify

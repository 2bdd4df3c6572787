// SPDX-License-Identifier: Apache-2.0
// replay(): runs a workload on an engine, a limited number of requests at a time, and returns the
// results of each request.
//
// Threading: blocks the caller; no other thread uses the engine meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/engine.h>

#include "tools/bench/cache_workload.h"

namespace heddle::tools {

struct Replayed {
  std::vector<TokenId> output;
  int64_t prompt_tokens = 0;
  // Length of the longest prefix shared with a sequence sent earlier, which a cache without
  // evictions could reuse.
  int64_t shared_tokens = 0;
  CacheReport cache;
  double first_token_seconds = 0;
  double decode_tokens_per_second = 0;  // 0 if there are fewer than two tokens
};

struct Replay {
  std::vector<Replayed> requests;  // results of the requests, in the order of the workload
  double seconds = 0;
};

// Runs the requests with greedy sampling to their full length. Error: that of a request.
Result<Replay> replay(Engine& engine, const Workload& workload, int64_t concurrency);

}  // namespace heddle::tools

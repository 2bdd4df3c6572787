// SPDX-License-Identifier: Apache-2.0
// replay(): a workload through an engine, a bounded number of requests at a time, and the events
// that each of them got.
//
// Threading: blocks; no other thread uses the engine meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/engine.h>

#include "tools/bench/cache_workload.h"

namespace heddle::tools {

struct Replayed {
  std::vector<TokenId> output;
  int64_t prompt_tokens = 0;
  // The longest prefix shared with a sequence sent before: what a cache without evictions could
  // reuse.
  int64_t shared_tokens = 0;
  CacheReport cache;
  double first_token_seconds = 0;
  double decode_tokens_per_second = 0;  // 0 with fewer than two tokens
};

struct Replay {
  std::vector<Replayed> requests;  // in the order of the workload
  double seconds = 0;
};

// Greedy, to the requests' full length. Error: what the engine said of a request.
Result<Replay> replay(Engine& engine, const Workload& workload, int64_t concurrency);

}  // namespace heddle::tools

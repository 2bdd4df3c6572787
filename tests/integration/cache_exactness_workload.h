// SPDX-License-Identifier: Apache-2.0
// The requests of the cache's exactness matrix and what the real model answers to each of them when
// it is computed cold and alone: conversations over a few system prompts, forks, exact repeats and
// prompts that no other request has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <heddle/engine.h>

namespace heddle::testing {

// Everything a client can see of a drawn token, to the last bit.
struct ExactAnswer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> bits;  // of all logprobs, alternatives included, with their tokens
  FinishReason reason = FinishReason::kError;
  std::string error;
  int64_t cached_tokens = 0;
  int64_t exact_repeats = 0;

  friend bool operator==(const ExactAnswer& a, const ExactAnswer& b) {
    return a.tokens == b.tokens && a.bits == b.bits && a.reason == b.reason;
  }
};

// A number of requests that may run at the same time; those of a later wave build on their answers.
using Wave = std::vector<Request>;

struct ExactWorkload {
  std::vector<Wave> waves;
  std::vector<ExactAnswer> answers;  // cold and alone, in order of the waves
  int64_t prompt_tokens = 0;
};

// Runs requests together. `preempted`: the first half gets going before the second half arrives,
// which is more urgent, the last of it (in the first wave the longest of all) first.
std::vector<ExactAnswer> answer_together(Engine& engine, const Wave& wave, bool preempted);

// Computed once each, with an engine without a cache that has one request at a time, whose keys and
// values are stored in fp32 or in FP8.
const ExactWorkload& exact_workload(bool fp8_kv);

}  // namespace heddle::testing

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

inline constexpr size_t kTopLogprobs = 20;

// Everything a client can see of a drawn token, to the last bit.
struct ExactAnswer {
  // Of a token: its id and logprob, then those of its alternatives.
  static constexpr size_t kWordsPerToken = 2 * (1 + kTopLogprobs);

  std::vector<TokenId> tokens;
  std::vector<uint32_t> bits;  // kWordsPerToken for each
  FinishReason reason = FinishReason::kError;
  std::string error;
  int64_t cached_tokens = 0;
  int64_t exact_repeats = 0;
  DraftReport drafts;

  friend bool operator==(const ExactAnswer& a, const ExactAnswer& b) {
    return a.tokens == b.tokens && a.bits == b.bits && a.reason == b.reason;
  }
};

// A number of requests that may run at the same time; those of a later wave build on their answers.
using Wave = std::vector<Request>;

// How many requests a workload has: some 65, of which one is long, or 20 of the same kinds.
enum class Extent { kWhole, kTwenty };

struct ExactWorkload {
  std::vector<Wave> waves;
  std::vector<ExactAnswer> answers;  // cold and alone, in order of the waves
  int64_t prompt_tokens = 0;
};

// Runs requests together. `preempted`: the first half gets going before the second half arrives,
// which is more urgent, the last of it (in the first wave the longest of all) first.
std::vector<ExactAnswer> answer_together(Engine& engine, const Wave& wave, bool preempted);

// How the model computes: bit for bit, likewise with keys and values in FP8, or with the kernels of
// the default mode in fp32.
enum class Kernels { kExact, kExactFp8, kFast };

// Computed once each on a device ("cpu", "cuda"), by an engine without a cache that has one request
// at a time and launches kernel by kernel.
const ExactWorkload& exact_workload(const std::string& device, Kernels kernels,
                                    Extent extent = Extent::kWhole);

// Sets what `kernels` ask for.
void choose_kernels(EngineOptions& options, Kernels kernels);

}  // namespace heddle::testing

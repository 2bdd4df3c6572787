// SPDX-License-Identifier: Apache-2.0
// Who is retracted when the pages of a decode step run out.
//
// Keys, ascending: retracted kMaxRetractions times or more (last), urgency, retractions so far,
// output tokens, -prompt tokens, -arrival. Little work is lost with little output, and much memory
// comes free with a long prompt. The reference looks at output and prompt only.
//
// Threading: thread-compatible. Cost: O(n), no allocation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace heddle::scheduler {

// A request that was retracted this often goes only when nobody else is left.
constexpr int32_t kMaxRetractions = 3;

enum class RetractionRule {
  kOurs,
  kReference,  // output tokens, -prompt tokens, -arrival
};

struct RetractionCandidate {
  int64_t urgency = 0;
  int32_t num_retractions = 0;
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t arrival = 0;  // unique
};

// Index of the one to retract; none when fewer than two are running: the last one is never
// retracted, it fits alone or it can never run.
[[nodiscard]] std::optional<int32_t> choose_retraction(std::span<const RetractionCandidate> running,
                                                       RetractionRule rule = RetractionRule::kOurs);

}  // namespace heddle::scheduler

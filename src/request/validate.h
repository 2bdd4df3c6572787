// SPDX-License-Identifier: Apache-2.0
// Checks the fields of a request. The engine checks every request with these functions; the server
// calls them earlier, to name the field in its answer.
//
// Messages begin with the field, then the value, then the allowed range:
//   "top_p is 1.5; it must be above 0 and at most 1"
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include <heddle/request.h>
#include <heddle/status.h>

namespace heddle::request {

inline constexpr size_t kMaxIdBytes = 512;
inline constexpr size_t kMaxStopPatterns = 16;     // their automata also have at most
                                                   // StopPattern::kMaxStates states together
inline constexpr size_t kMaxStopTexts = 128;       // most stop texts of a request; the server
                                                   // allows fewer by default
inline constexpr size_t kMaxStopTextBytes = 4096;  // a stop text needs one automaton state per byte
inline constexpr size_t kMaxStopTokens = 1024;
inline constexpr size_t kMaxLogitBiases = 4096;
inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr size_t kMaxLogprobTokens = 128;
inline constexpr int32_t kMaxChoices = 128;
// Logits are divided by the penalty; a smaller one could make them overflow fp32.
inline constexpr double kMinRepetitionPenalty = 0.01;
inline constexpr double kMaxRepetitionPenalty = 2;

struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t context_length = 0;  // most tokens of prompt and output together
};

// All three functions return kInvalidArgument for a field that is out of range.
Status validate_sampling(const SamplingParams& sampling, int64_t vocab_size);
Status validate_stop(const StopConditions& stop, int64_t vocab_size);
Status validate_request(const Request& request, const RequestLimits& limits);

}  // namespace heddle::request

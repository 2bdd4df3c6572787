// SPDX-License-Identifier: Apache-2.0
// The numbers that options accept: a table of ranges for the whole program, and the only function
// that reads a number from the command line. No value is wrapped, clamped or truncated.
//
//   options.value("--threads", &threads, ranges::kThreads, "Compute threads; 0: physical cores");
//
// Threading: plain values and free functions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include <heddle/status.h>

namespace heddle::tools {

// The values that an option accepts, including both ends unless a member excludes them. A number
// that the value's type cannot represent is never in the range, nor are nan and the infinities.
struct ValueRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_excluded = false;
  std::optional<double> also;           // a value outside the range that has a special meaning
  std::string_view keeps_default = {};  // a text that, like "auto", keeps the option's default
};

namespace ranges {

inline constexpr double kYear = 365.0 * 24 * 3600;

inline constexpr ValueRange kAny = {};
// Number of compute threads; 0: the program chooses.
inline constexpr ValueRange kThreads = {.low = 0, .high = 1024};
// Number of threads that serve requests.
inline constexpr ValueRange kWorkers = {.low = 1, .high = 256};
inline constexpr ValueRange kSeconds = {.low = 0, .high = kYear};
inline constexpr ValueRange kSecondsOrUnlimited = {.low = 0, .high = kYear, .also = -1};
// Period in seconds; 0 means never.
inline constexpr ValueRange kPeriodSeconds = {.low = 1, .high = kYear, .also = 0};
inline constexpr ValueRange kMeasureSeconds = {.low = 0, .high = 3600, .low_excluded = true};
inline constexpr ValueRange kBytes = {.low = 1, .high = 1e12};
inline constexpr ValueRange kCount = {.low = 1};
// 0 means no limit, or that the program chooses.
inline constexpr ValueRange kCountOrNone = {.low = 0};
inline constexpr ValueRange kRepeats = {.low = 1, .high = 1000};
inline constexpr ValueRange kBatch = {.low = 1, .high = 4096};        // sequences of one step
inline constexpr ValueRange kStepTokens = {.low = 1, .high = 65536};  // tokens of one step
inline constexpr ValueRange kDraftTokens = {.low = 0, .high = 64};
inline constexpr ValueRange kDraftSteps = {.low = 0, .high = 63};
inline constexpr ValueRange kBranches = {.low = 1, .high = 16};
// Average tokens of a sequence per step.
inline constexpr ValueRange kAcceptance = {.low = 0, .high = 64};
inline constexpr ValueRange kVerifyRows = {.low = 2, .high = 64};
// SGLang's -1 means no chunks, which no step here can promise; it keeps the default.
inline constexpr ValueRange kChunkTokens = {.low = 1, .high = 65536, .keeps_default = "-1"};
inline constexpr ValueRange kContext = {.low = 1, .high = 1e8};  // number of tokens in one sequence
inline constexpr ValueRange kShare = {.low = 0, .high = 1, .low_excluded = true};
inline constexpr ValueRange kProbability = {.low = 0, .high = 1};
inline constexpr ValueRange kNotNegative = {.low = 0};
inline constexpr ValueRange kPositive = {.low = 0, .low_excluded = true};
inline constexpr ValueRange kPenalty = {.low = -2, .high = 2};
inline constexpr ValueRange kRepetitionPenalty = {.low = 0.01, .high = 2};
// Number of tokens to draw from; 0 or -1 means all.
inline constexpr ValueRange kTopK = {.low = -1};
// Number of alternatives per token, up to request::kMaxTopLogprobs.
inline constexpr ValueRange kLogprobs = {.low = 0, .high = 20};
// Number of stop texts, up to request::kMaxStopTexts.
inline constexpr ValueRange kStopTexts = {.low = 1, .high = 128};
inline constexpr ValueRange kRequestLogLevel = {.low = 0, .high = 3};
inline constexpr ValueRange kTenants = {.low = 0, .high = 64};

}  // namespace ranges

// Reads all of `text` as a decimal number. Number: int32_t, int64_t, uint16_t, uint64_t, float or
// double. Error: kInvalidArgument, with the text and the allowed values:
//   "70000 is not a whole number from 0 to 65535"
template <typename Number>
Result<Number> parse_number(std::string_view text, const ValueRange& range);

// Reads whole numbers within the range, separated by commas: "512,4096". The error begins with
// `option` and the text.
Result<std::vector<int64_t>> parse_counts(const char* option, std::string_view text,
                                          const ValueRange& range);

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
// The results of a load test, computed from the records of its requests:
//   TTFT  time from sending to the first text
//   ITL   gaps between texts; a text of k tokens counts as k gaps of gap / k
//   TPOT  (E2E - TTFT) / (output tokens - 1), for at least two tokens
//   E2E   time from sending to the last text
// Failed requests are only counted as failures.
//
// Threading: free functions and plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "tools/load/load_record.h"

namespace heddle::tools {

// The percentile of ascending values, interpolated linearly at rank share * (n - 1); 0 without
// values.
double percentile_of_sorted(std::span<const double> sorted, double share);

struct Distribution {
  std::vector<double> sorted;
  double mean = 0;
  double deviation = 0;  // standard deviation of the population

  Distribution() = default;
  explicit Distribution(std::vector<double> values);

  [[nodiscard]] double percentile(double share) const {
    return percentile_of_sorted(sorted, share);
  }

  [[nodiscard]] double max() const { return sorted.empty() ? 0 : sorted.back(); }
};

// Limits in ms within which a request counts as good; itl is the limit for its 95th percentile.
struct ServiceLevels {
  std::optional<double> ttft_ms, itl_ms, tpot_ms, e2e_ms;

  [[nodiscard]] bool any() const { return ttft_ms || itl_ms || tpot_ms || e2e_ms; }
};

// Parses limits such as "ttft=1000,itl=50". Error: kInvalidArgument, naming the wrong part and what
// is allowed.
Result<ServiceLevels> parse_service_levels(std::string_view text);

struct FailureCount {
  int64_t count = 0;
  std::string example;  // message of the first such failure
};

struct LoadStatistics {
  double duration_seconds = 0;  // from the first sending to the last end
  int64_t completed = 0;
  int64_t failed = 0;
  std::map<std::string, FailureCount> failures;  // keyed by kind of failure
  int64_t good = 0;  // requests that completed within the service levels
  int64_t input_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  // Completed requests for which the server sent no token counts: one token per event is assumed.
  int64_t without_usage = 0;
  double concurrency = 0;      // average number of requests in flight: sum of E2E / duration
  double max_lag_seconds = 0;  // longest delay of a sending compared with its schedule
  Distribution ttft_ms, itl_ms, tpot_ms, e2e_ms;

  [[nodiscard]] double per_second(int64_t count) const {
    return duration_seconds > 0 ? static_cast<double>(count) / duration_seconds : 0;
  }
};

LoadStatistics summarize(std::span<const LoadRecord> records, const ServiceLevels& levels);

// Latencies of a completed request in ms; empty if it has too few texts for them.
struct RequestLatencies {
  std::optional<double> ttft_ms, tpot_ms;
  double e2e_ms = 0;
  std::vector<double> itl_ms;
  int64_t output_tokens = 0;
};

RequestLatencies latencies_of(const LoadRecord& record);

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "tools/cli/value_range.h"

namespace heddle::tools {
namespace {

bool keeps(const ServiceLevels& levels, const RequestLatencies& latencies) {
  const auto within = [](const std::optional<double>& limit, double value) {
    return !limit || value <= *limit;
  };
  const Distribution gaps(latencies.itl_ms);
  return within(levels.ttft_ms, latencies.ttft_ms.value_or(latencies.e2e_ms)) &&
         within(levels.tpot_ms, latencies.tpot_ms.value_or(0)) &&
         within(levels.itl_ms, gaps.percentile(0.95)) && within(levels.e2e_ms, latencies.e2e_ms);
}

}  // namespace

double percentile_of_sorted(std::span<const double> sorted, double share) {
  if (sorted.empty()) return 0;
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - static_cast<double>(below));
}

Distribution::Distribution(std::vector<double> values) : sorted(std::move(values)) {
  if (sorted.empty()) return;
  std::ranges::sort(sorted);
  const auto count = static_cast<double>(sorted.size());
  mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  double squares = 0;
  for (const double value : sorted) squares += (value - mean) * (value - mean);
  deviation = std::sqrt(squares / count);
}

Result<ServiceLevels> parse_service_levels(std::string_view text) {
  ServiceLevels levels;
  const std::pair<std::string_view, std::optional<double>*> names[] = {{"ttft", &levels.ttft_ms},
                                                                       {"itl", &levels.itl_ms},
                                                                       {"tpot", &levels.tpot_ms},
                                                                       {"e2e", &levels.e2e_ms}};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const size_t equals = std::min(part.find('='), part.size());
    const auto* const found = std::ranges::find(names, part.substr(0, equals),
                                                [](const auto& name) { return name.first; });
    if (found == std::end(names) || equals == part.size()) {
      return invalid_argument(fmt::format(
          "\"{}\" is no limit; write ttft=MS, itl=MS, tpot=MS or e2e=MS, separated by commas",
          part));
    }
    if (*found->second) return invalid_argument(fmt::format("{} is there twice", found->first));
    const auto limit = parse_number<double>(part.substr(equals + 1), ranges::kPositive);
    if (!limit.ok()) return limit.status().with_context(found->first);
    *found->second = *limit;
    begin = end + 1;
  }
  return levels;
}

RequestLatencies latencies_of(const LoadRecord& record) {
  RequestLatencies latencies;
  int64_t arrived = 0;
  for (const auto& arrival : record.arrivals) arrived += arrival.tokens;
  latencies.output_tokens = record.output_tokens.value_or(arrived);
  if (record.arrivals.empty()) {
    latencies.e2e_ms = (record.ended - record.sent) * 1e3;
    return latencies;
  }
  const double ttft_ms = (record.arrivals.front().at - record.sent) * 1e3;
  latencies.ttft_ms = ttft_ms;
  latencies.e2e_ms = (record.arrivals.back().at - record.sent) * 1e3;
  if (latencies.output_tokens > 1) {
    latencies.tpot_ms =
        (latencies.e2e_ms - ttft_ms) / static_cast<double>(latencies.output_tokens - 1);
  }
  for (size_t i = 1; i < record.arrivals.size(); ++i) {
    const auto& next = record.arrivals[i];
    const double gap_ms = (next.at - record.arrivals[i - 1].at) * 1e3;
    latencies.itl_ms.insert(latencies.itl_ms.end(), static_cast<size_t>(next.tokens),
                            gap_ms / static_cast<double>(next.tokens));
  }
  return latencies;
}

LoadStatistics summarize(std::span<const LoadRecord> records, const ServiceLevels& levels) {
  LoadStatistics statistics;
  std::vector<double> ttft_ms, itl_ms, tpot_ms, e2e_ms;
  double first_sent = 0, last_ended = 0, sum_e2e_seconds = 0;
  for (const LoadRecord& record : records) {
    first_sent = &record == records.data() ? record.sent : std::min(first_sent, record.sent);
    last_ended = std::max(last_ended, record.ended);
    statistics.max_lag_seconds =
        std::max(statistics.max_lag_seconds, record.sent - record.scheduled);
    if (record.failure) {
      ++statistics.failed;
      FailureCount& failures = statistics.failures[record.failure->kind];
      if (failures.count++ == 0) failures.example = record.failure->message;
      continue;
    }
    ++statistics.completed;
    const RequestLatencies latencies = latencies_of(record);
    statistics.input_tokens += record.input_tokens.value_or(0);
    statistics.cached_tokens += record.cached_tokens;
    statistics.output_tokens += latencies.output_tokens;
    if (!record.output_tokens) ++statistics.without_usage;
    if (latencies.ttft_ms) ttft_ms.push_back(*latencies.ttft_ms);
    if (latencies.tpot_ms) tpot_ms.push_back(*latencies.tpot_ms);
    itl_ms.insert(itl_ms.end(), latencies.itl_ms.begin(), latencies.itl_ms.end());
    e2e_ms.push_back(latencies.e2e_ms);
    sum_e2e_seconds += latencies.e2e_ms / 1e3;
    if (keeps(levels, latencies)) ++statistics.good;
  }
  statistics.duration_seconds = std::max(last_ended - first_sent, 0.0);
  if (statistics.duration_seconds > 0) {
    statistics.concurrency = sum_e2e_seconds / statistics.duration_seconds;
  }
  statistics.ttft_ms = Distribution(std::move(ttft_ms));
  statistics.itl_ms = Distribution(std::move(itl_ms));
  statistics.tpot_ms = Distribution(std::move(tpot_ms));
  statistics.e2e_ms = Distribution(std::move(e2e_ms));
  return statistics;
}

}  // namespace heddle::tools

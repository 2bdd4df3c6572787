// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/cli/table.h"

namespace heddle::tools {
namespace {

using nlohmann::ordered_json;

void add_distribution(ordered_json& json, const std::string& name, const Distribution& values) {
  json["mean_" + name + "_ms"] = values.mean;
  json["median_" + name + "_ms"] = values.percentile(0.5);
  json["std_" + name + "_ms"] = values.deviation;
  json["p90_" + name + "_ms"] = values.percentile(0.9);
  json["p95_" + name + "_ms"] = values.percentile(0.95);
  json["p99_" + name + "_ms"] = values.percentile(0.99);
  json["max_" + name + "_ms"] = values.max();
}

ordered_json levels_json(const ServiceLevels& levels) {
  ordered_json json = ordered_json::object();
  if (levels.ttft_ms) json["ttft_ms"] = *levels.ttft_ms;
  if (levels.itl_ms) json["itl_ms"] = *levels.itl_ms;
  if (levels.tpot_ms) json["tpot_ms"] = *levels.tpot_ms;
  if (levels.e2e_ms) json["e2e_ms"] = *levels.e2e_ms;
  return json;
}

ordered_json record_json(const LoadRecord& record) {
  ordered_json json = {
      {"scheduled", record.scheduled}, {"sent", record.sent}, {"ended", record.ended}};
  if (record.failure) {
    json["failure"] = record.failure->kind;
    json["message"] = record.failure->message;
    return json;
  }
  const RequestLatencies latencies = latencies_of(record);
  if (record.input_tokens) json["input_tokens"] = *record.input_tokens;
  json["cached_tokens"] = record.cached_tokens;
  json["output_tokens"] = latencies.output_tokens;
  if (latencies.ttft_ms) json["ttft_ms"] = *latencies.ttft_ms;
  if (latencies.tpot_ms) json["tpot_ms"] = *latencies.tpot_ms;
  json["e2e_latency_ms"] = latencies.e2e_ms;
  json["itl_ms"] = latencies.itl_ms;
  return json;
}

}  // namespace

std::string load_report_text(const LoadReport& report) {
  const LoadStatistics& statistics = report.statistics;
  std::string text;
  for (const auto& [name, value] : report.facts) text += fmt::format("{:<12} {}\n", name, value);
  text += '\n';
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<36}{:>12}\n", name, value);
  };
  const auto rate = [](double value) { return fmt::format("{:.2f}", value); };
  line("Successful requests:", fmt::format("{}", statistics.completed));
  line("Failed requests:", fmt::format("{}", statistics.failed));
  const auto ended = static_cast<int64_t>(report.records.size());
  if (report.planned > ended) line("Not ended:", fmt::format("{}", report.planned - ended));
  line("Benchmark duration (s):", rate(statistics.duration_seconds));
  line("Total input tokens:", fmt::format("{}", statistics.input_tokens));
  line("Of these cached:", fmt::format("{}", statistics.cached_tokens));
  line("Total generated tokens:", fmt::format("{}", statistics.output_tokens));
  line("Request throughput (req/s):", rate(statistics.per_second(statistics.completed)));
  if (report.levels.any()) {
    line("Goodput (req/s):", rate(statistics.per_second(statistics.good)));
  }
  line("Input token throughput (tok/s):", rate(statistics.per_second(statistics.input_tokens)));
  line("Output token throughput (tok/s):", rate(statistics.per_second(statistics.output_tokens)));
  line("Total token throughput (tok/s):",
       rate(statistics.per_second(statistics.input_tokens + statistics.output_tokens)));
  line("Concurrency:", rate(statistics.concurrency));
  line("Latest send behind schedule (ms):", rate(statistics.max_lag_seconds * 1e3));
  Table table({"ms", "mean", "std", "median", "p90", "p95", "p99", "max"});
  const auto add = [&](const char* name, const Distribution& values) {
    table.add({name, rate(values.mean), rate(values.deviation), rate(values.percentile(0.5)),
               rate(values.percentile(0.9)), rate(values.percentile(0.95)),
               rate(values.percentile(0.99)), rate(values.max())});
  };
  add("TTFT", statistics.ttft_ms);
  add("ITL", statistics.itl_ms);
  add("TPOT", statistics.tpot_ms);
  add("E2E", statistics.e2e_ms);
  text += "\n" + table.to_string();
  if (statistics.without_usage > 0) {
    text += fmt::format(
        "\nThe server counted no tokens for {} requests: one per event is assumed, their prompts "
        "count as none.\n",
        statistics.without_usage);
  }
  for (const auto& [kind, failures] : statistics.failures) {
    text += fmt::format("\n{} failed, {}: {}\n", failures.count, kind, failures.example);
  }
  return text;
}

ordered_json load_report_json(const LoadReport& report, bool details) {
  const LoadStatistics& statistics = report.statistics;
  ordered_json json = {{"benchmark", "serve"}};
  for (const auto& [name, value] : report.facts) json[name] = value;
  json["planned"] = report.planned;
  json["completed"] = statistics.completed;
  json["failed"] = statistics.failed;
  json["failures"] = ordered_json::object();
  for (const auto& [kind, failures] : statistics.failures) {
    json["failures"][kind] = {{"count", failures.count}, {"example", failures.example}};
  }
  json["duration"] = statistics.duration_seconds;
  json["total_input_tokens"] = statistics.input_tokens;
  json["total_cached_tokens"] = statistics.cached_tokens;
  json["total_output_tokens"] = statistics.output_tokens;
  json["without_usage"] = statistics.without_usage;
  json["request_throughput"] = statistics.per_second(statistics.completed);
  json["input_throughput"] = statistics.per_second(statistics.input_tokens);
  json["output_throughput"] = statistics.per_second(statistics.output_tokens);
  json["total_throughput"] =
      statistics.per_second(statistics.input_tokens + statistics.output_tokens);
  json["concurrency"] = statistics.concurrency;
  json["max_lag_ms"] = statistics.max_lag_seconds * 1e3;
  if (report.levels.any()) {
    json["slo"] = levels_json(report.levels);
    json["good"] = statistics.good;
    json["goodput"] = statistics.per_second(statistics.good);
  }
  add_distribution(json, "ttft", statistics.ttft_ms);
  add_distribution(json, "itl", statistics.itl_ms);
  add_distribution(json, "tpot", statistics.tpot_ms);
  add_distribution(json, "e2e_latency", statistics.e2e_ms);
  if (details) {
    json["requests"] = ordered_json::array();
    for (const LoadRecord& record : report.records) json["requests"].push_back(record_json(record));
  }
  return json;
}

LoadTimeline timeline_of(std::span<const LoadRecord> records, int64_t bins) {
  double end = 0;
  for (const LoadRecord& record : records) end = std::max(end, record.ended);
  const auto count = static_cast<size_t>(bins);
  LoadTimeline timeline{.bin_seconds = end / static_cast<double>(bins),
                        .tokens_per_second = std::vector<double>(count),
                        .in_flight = std::vector<double>(count)};
  if (end <= 0) return timeline;
  const double width = timeline.bin_seconds;
  const auto bin_of = [&](double at) {
    return std::min(static_cast<size_t>(std::max(at, 0.0) / width), count - 1);
  };
  for (const LoadRecord& record : records) {
    for (const auto& arrival : record.arrivals) {
      timeline.tokens_per_second[bin_of(arrival.at)] += static_cast<double>(arrival.tokens) / width;
    }
    for (size_t bin = bin_of(record.sent); bin <= bin_of(record.ended); ++bin) {
      const double begin = static_cast<double>(bin) * width;
      const double inside = std::min(record.ended, begin + width) - std::max(record.sent, begin);
      timeline.in_flight[bin] += std::max(inside, 0.0) / width;
    }
  }
  return timeline;
}

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
// The report of a load test: text for the terminal, JSON for other programs, and one self-contained
// HTML file with plots.
//
// Threading: free functions without state.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/load/load_record.h"
#include "tools/load/load_statistics.h"

namespace heddle::tools {

struct LoadReport {
  // Name and value of each fact, as "server", "model", "workload".
  std::vector<std::pair<std::string, std::string>> facts;
  ServiceLevels levels;
  LoadStatistics statistics;
  std::vector<LoadRecord> records;
  int64_t planned = 0;  // number of planned requests; records are fewer if the run was stopped
};

std::string load_report_text(const LoadReport& report);

// The report as JSON. Names contain the units. With `details`, it has an object for each request.
nlohmann::ordered_json load_report_json(const LoadReport& report, bool details);

// Tokens that arrived, and requests in flight, in each of `bins` equal parts of the run.
struct LoadTimeline {
  double bin_seconds = 0;
  std::vector<double> tokens_per_second;
  std::vector<double> in_flight;  // average number of requests in flight in each part
};

LoadTimeline timeline_of(std::span<const LoadRecord> records, int64_t bins);

std::string load_report_html(const LoadReport& report);  // defined in load_report_html.cpp

}  // namespace heddle::tools

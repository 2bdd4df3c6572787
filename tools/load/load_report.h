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
  std::vector<std::pair<std::string, std::string>> facts;  // "server", "model", "workload", ...
  ServiceLevels levels;
  LoadStatistics statistics;
  std::vector<LoadRecord> records;
  int64_t planned = 0;  // requests; more than there are records where the run was stopped
};

std::string load_report_text(const LoadReport& report);

// Units are in the names. With `details`, an object for each request.
nlohmann::ordered_json load_report_json(const LoadReport& report, bool details);

// Tokens that arrived and requests in flight in `bins` equal parts of the run.
struct LoadTimeline {
  double bin_seconds = 0;
  std::vector<double> tokens_per_second;
  std::vector<double> in_flight;  // mean
};

LoadTimeline timeline_of(std::span<const LoadRecord> records, int64_t bins);

std::string load_report_html(const LoadReport& report);  // load_report_html.cpp

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
#include "bench_report.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "output_file.h"

namespace heddle::tools {

void declare_bench_output(Options& options, BenchOutput& output) {
  options.flag("--json", &output.json, "Print the report as JSON");
  options.text("--output", &output.file, "Also write the JSON report to a file");
}

Status check_bench_output(const BenchOutput& output) {
  return output.file.empty() ? ok_status() : check_output_file(output.file, ExistingFile::kReplace);
}

Status emit(const BenchOutput& output, const nlohmann::ordered_json& report,
            const std::string& text) {
  fmt::print("{}", output.json ? report.dump(2) + "\n" : text);
  if (output.file.empty()) return {};
  std::ofstream file(output.file);
  file << report.dump(2) << '\n';
  if (!file.flush()) return invalid_argument(fmt::format("{}: cannot be written", output.file));
  return {};
}

}  // namespace heddle::tools

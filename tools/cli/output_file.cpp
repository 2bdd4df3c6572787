// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/output_file.h"

#include <cerrno>
#include <fstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace heddle::tools {

namespace fs = std::filesystem;

Status check_output_file(const fs::path& path, ExistingFile existing) {
  const auto refuse = [&path](std::string_view why) {
    return invalid_argument(fmt::format("cannot write {}: {}", path.string(), why));
  };
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return refuse("it is a folder; name a file");
  if (fs::exists(status)) {
    if (existing == ExistingFile::kKeep && fs::is_regular_file(status) &&
        fs::file_size(path, error) != 0) {
      return refuse("it exists; remove it or name another file");
    }
    if (::access(path.c_str(), W_OK) == 0) return ok_status();
    return refuse(std::generic_category().message(errno));
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (path.filename().empty()) return refuse("it has no name");
  if (!fs::is_directory(folder, error)) return refuse("its folder is not there; make it first");
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return ok_status();
  return refuse(std::generic_category().message(errno));
}

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

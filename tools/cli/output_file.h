// SPDX-License-Identifier: Apache-2.0
// The output of a benchmark: before the work a check that the file can be written, afterwards
// reports as a table or JSON on standard output, and as JSON in the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "tools/cli/options.h"

namespace heddle::tools {

// Converts bytes to MiB, the unit of reports.
constexpr double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

enum class ExistingFile {
  kReplace,
  kKeep,  // an existing file that is not empty is an error
};

// Checks that the file can be written, without changing it. A device or a pipe (/dev/stdout) is
// always accepted. Error: kInvalidArgument, naming the file and the remedy.
Status check_output_file(const std::filesystem::path& path, ExistingFile existing);

struct BenchOutput {
  bool json = false;
  std::string file;
};

void declare_bench_output(Options& options, BenchOutput& output);

// Checks the output before hours of measuring. Error: the file cannot be written.
Status check_bench_output(const BenchOutput& output);

// Prints the table or the JSON, and writes the JSON file if one was requested.
Status emit(const BenchOutput& output, const nlohmann::ordered_json& report,
            const std::string& text);

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
// What every benchmark does with its report: a table or JSON on standard output, JSON to a file.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "options.h"

namespace heddle::tools {

struct BenchOutput {
  bool json = false;
  std::string file;
};

void declare_bench_output(Options& options, BenchOutput& output);

// Before hours of measuring. Error: the file cannot be written.
Status check_bench_output(const BenchOutput& output);

// Prints the table or the JSON, and writes the JSON file if one is wanted.
Status emit(const BenchOutput& output, const nlohmann::ordered_json& report,
            const std::string& text);

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
// heddle bench ops --device cuda: single ops on a GPU, compared with its copy bandwidth.
#pragma once

#include <string>

#include <heddle/status.h>

#include "tools/cli/output_file.h"

namespace heddle::tools {

// Runs the benchmark. `device`: "cuda" or "cuda:N". Error: that of open_cuda_device(); kNotFound if
// no op's name contains `filter`.
Status run_ops_on_cuda(const std::string& device, const std::string& filter, bool exact,
                       const BenchOutput& output);

}  // namespace heddle::tools

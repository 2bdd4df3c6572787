// SPDX-License-Identifier: Apache-2.0
// heddle bench ops --device cuda: single ops on a GPU beside its speed of copying.
#pragma once

#include <string>

#include <heddle/status.h>

#include "tools/cli/output_file.h"

namespace heddle::tools {

// `device`: "cuda" or "cuda:N". Errors: that of open_cuda_device(); kNotFound where no op has
// `filter` in its name.
Status run_ops_on_cuda(const std::string& device, const std::string& filter, bool exact,
                       const BenchOutput& output);

}  // namespace heddle::tools

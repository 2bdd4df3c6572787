// SPDX-License-Identifier: Apache-2.0
// The text of `heddle version` and `heddle --version`: version, commit and compiler of this
// program, and the devices that it can use here.
#pragma once

#include <string>

namespace heddle::tools {

// The text, four lines. Cost: asks the driver for the number of GPUs and opens none.
std::string version_text();

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
// The text of `heddle version` and `heddle --version`: version, commit and compiler of this
// program, and the devices that it can use here.
#pragma once

#include <string>

namespace heddle::tools {

// Four lines. Cost: the driver is asked how many GPUs there are; none is opened.
std::string version_text();

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
// What a measurement must say about where it was made.
#pragma once

#include <string>

namespace heddle::tools {

std::string cpu_model();     // "AMD EPYC ...", as the kernel names it
std::string built_commit();  // the commit this binary was configured at, or "unknown"

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <fstream>

namespace heddle::tools {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string built_commit() { return HEDDLE_COMMIT; }

}  // namespace heddle::tools

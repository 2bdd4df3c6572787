// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/machine.h"

#include <fstream>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>

#include "core/log.h"

namespace heddle::tools {
namespace {

// Number of CPUs that this process may use; 0 if the system does not report it.
int32_t num_allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

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

std::string utc_time(std::time_t time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time));
}

std::string built_with() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

int32_t usable_threads(int32_t threads) {
  const int32_t cpus = num_allowed_cpus();
  if (cpus == 0 || threads <= cpus) return threads;
  log_warning(fmt::format("--threads {}: this process may run on {} CPUs; {} threads are used",
                          threads, cpus, cpus));
  return cpus;
}

}  // namespace heddle::tools

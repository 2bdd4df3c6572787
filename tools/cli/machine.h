// SPDX-License-Identifier: Apache-2.0
// The facts of the machine that a report of a measurement names.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace heddle::tools {

std::string cpu_model();                 // "AMD EPYC ...", as the kernel names it
std::string built_commit();              // the commit this binary was configured at, or "unknown"
std::string utc_time(std::time_t time);  // "2026-03-01T09:30:00Z"
std::string built_with();                // compiler: "gcc 12.2.0"

// The number of threads for --threads: at most the CPUs that this process may use; a reduction is
// logged. More threads would only wait for each other.
int32_t usable_threads(int32_t threads);

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
// Properties of the machine for reports of measurements.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace heddle::tools {

std::string cpu_model();     // name of the CPU from the kernel, as "AMD EPYC ..."
std::string built_commit();  // commit for which this binary was configured, or "unknown"
std::string utc_time(std::time_t time);  // time in UTC, as "2026-03-01T09:30:00Z"
std::string built_with();                // name and version of the compiler, as "gcc 12.2.0"

// Limits the value of --threads to the CPUs that this process may use, and logs a reduction. More
// threads would only wait for each other.
int32_t usable_threads(int32_t threads);

}  // namespace heddle::tools

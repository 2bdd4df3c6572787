// SPDX-License-Identifier: Apache-2.0
// The CPUs this process may run on, and which of them are hardware threads of one physical core:
// those share its vector units, so that two compute threads on one core do the work of one.
//
// Threading: thread-safe; nothing is kept.
#pragma once

#include <vector>

namespace heddle::device {

struct LogicalCpu {
  int number = 0;  // the system's number of the CPU
  int core = 0;    // id of the physical core; hardware threads of one core have the same
};

// CPUs that this process may use, in ascending order. Empty when the system does not say; where it
// does not know about cores, each CPU counts as one.
[[nodiscard]] std::vector<LogicalCpu> allowed_cpus();

// The CPUs in the order in which compute threads should take them: the first of every core, then
// the second of every core that has one, and so on.
[[nodiscard]] std::vector<int> spread_over_cores(const std::vector<LogicalCpu>& cpus);

// Physical cores this process may run on, at least 1.
[[nodiscard]] int num_physical_cores();

}  // namespace heddle::device

// SPDX-License-Identifier: Apache-2.0
// The CPUs that this process may use, and which of them are hardware threads of one physical core.
// Such threads share the vector units of the core, so two compute threads on one core do the work
// of one.
//
// Threading: thread-safe; keeps no state.
#pragma once

#include <vector>

namespace heddle::device {

struct LogicalCpu {
  int number = 0;  // the system's number of the CPU
  int core = 0;    // id of the physical core; all hardware threads of a core have the same
};

// The CPUs that this process may use, in ascending order. Empty if the system does not report them;
// if it does not report cores, each CPU counts as a core.
[[nodiscard]] std::vector<LogicalCpu> allowed_cpus();

// The CPUs in the order in which compute threads should use them: the first of each core, then the
// second of each core that has one, and so on.
[[nodiscard]] std::vector<int> spread_over_cores(const std::vector<LogicalCpu>& cpus);

// Number of physical cores that this process may use, at least 1.
[[nodiscard]] int num_physical_cores();

}  // namespace heddle::device

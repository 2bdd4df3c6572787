// SPDX-License-Identifier: Apache-2.0
// The CPUs that this process may use, and which of them are hardware threads of one physical core.
// Such threads share the vector units of the core, so two compute threads on one core do the work
// of one.
//
// CpuScope restricts the calling thread to a group of CPUs, for example to those of one rank.
//
// Threading: functions are thread-safe and keep no state; a CpuScope belongs to the thread that
// creates it.
#pragma once

#include <vector>

#include <sched.h>

namespace heddle::device {

struct LogicalCpu {
  int number = 0;  // the system's number of the CPU
  int core = 0;    // id of the physical core; all hardware threads of a core have the same
};

// The CPUs that the calling thread may use, in ascending order. Empty if the system does not report
// them; if it does not report cores, each CPU counts as a core.
[[nodiscard]] std::vector<LogicalCpu> allowed_cpus();

// The CPUs in the order in which compute threads should use them: the first of each core, then the
// second of each core that has one, and so on.
[[nodiscard]] std::vector<int> spread_over_cores(const std::vector<LogicalCpu>& cpus);

// Number of physical cores that the calling thread may use, at least 1.
[[nodiscard]] int num_physical_cores();

// The CPUs [first, first + count) of `order`; empty if it has fewer than first + count.
[[nodiscard]] std::vector<int> cpu_group(const std::vector<int>& order, int first, int count);

// While it exists, the calling thread, and the threads that it creates, run on these CPUs alone.
// Does nothing if there are none, or if the system refuses.
class CpuScope {
 public:
  explicit CpuScope(const std::vector<int>& cpus);
  ~CpuScope();
  CpuScope(const CpuScope&) = delete;
  CpuScope& operator=(const CpuScope&) = delete;

 private:
  cpu_set_t before_ = {};  // the CPUs that the thread may use after the scope
  bool changed_ = false;
};

}  // namespace heddle::device

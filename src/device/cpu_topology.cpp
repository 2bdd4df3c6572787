// SPDX-License-Identifier: Apache-2.0
#include "device/cpu_topology.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include <sched.h>

namespace heddle::device {
namespace {

// A number the kernel tells of a CPU; -1 when it does not.
int topology_of(int cpu, const char* what) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + what);
  int value = -1;
  return file >> value ? value : -1;
}

}  // namespace

std::vector<LogicalCpu> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<LogicalCpu> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const int core = topology_of(cpu, "core_id");
    // Package -2 is none of the kernel's (-1 is: of a machine that has only one).
    cpus.push_back({.number = cpu,
                    .core = core >= 0 ? std::pair(topology_of(cpu, "physical_package_id"), core)
                                      : std::pair(-2, cpu)});
  }
  return cpus;
}

std::vector<int> spread_over_cores(const std::vector<LogicalCpu>& cpus) {
  std::map<std::pair<int, int>, int> num_taken;  // of each core
  std::vector<std::pair<int, int>> order;        // (how many of its core come before it, number)
  for (const LogicalCpu& cpu : cpus) order.emplace_back(num_taken[cpu.core]++, cpu.number);
  std::ranges::sort(order);
  std::vector<int> numbers;
  for (const auto& [round, number] : order) numbers.push_back(number);
  return numbers;
}

int num_physical_cores() {
  std::set<std::pair<int, int>> cores;
  for (const LogicalCpu& cpu : allowed_cpus()) cores.insert(cpu.core);
  return std::max(1, static_cast<int>(cores.size()));
}

}  // namespace heddle::device

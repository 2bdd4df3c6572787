// SPDX-License-Identifier: Apache-2.0
#include "device/cpu_topology.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace heddle::device {
namespace {

// The first CPU of the core of `cpu`, as the kernel reports it; `cpu` itself if it does not. Core
// numbers are not used, because they are unique only within a die or cluster.
int first_of_core(int cpu) {
  const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
  // Contents such as "0,64" or "0-1".
  for (const char* list : {"core_cpus_list", "thread_siblings_list"}) {
    std::ifstream file(folder + list);
    if (int first = 0; file >> first) return first;
  }
  return cpu;
}

}  // namespace

std::vector<LogicalCpu> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<LogicalCpu> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back({.number = cpu, .core = first_of_core(cpu)});
  }
  return cpus;
}

std::vector<int> spread_over_cores(const std::vector<LogicalCpu>& cpus) {
  std::map<int, int> num_taken;            // by core: hardware threads of it in `order` so far
  std::vector<std::pair<int, int>> order;  // (number of earlier hardware threads of the same core,
                                           // CPU number)
  for (const LogicalCpu& cpu : cpus) order.emplace_back(num_taken[cpu.core]++, cpu.number);
  std::ranges::sort(order);
  std::vector<int> numbers;
  for (const auto& [round, number] : order) numbers.push_back(number);
  return numbers;
}

int num_physical_cores() {
  std::set<int> cores;
  for (const LogicalCpu& cpu : allowed_cpus()) cores.insert(cpu.core);
  return std::max(1, static_cast<int>(cores.size()));
}

std::vector<int> cpu_group(const std::vector<int>& order, int first, int count) {
  if (std::ssize(order) < first + count) return {};
  return {order.begin() + first, order.begin() + first + count};
}

CpuScope::CpuScope(const std::vector<int>& cpus) {
  if (cpus.empty() || sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  changed_ = sched_setaffinity(0, sizeof(set), &set) == 0;
}

CpuScope::~CpuScope() {
  if (changed_) (void)sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace heddle::device

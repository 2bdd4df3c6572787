// SPDX-License-Identifier: Apache-2.0
#include "device/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <vector>

namespace heddle::device {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The file names and keys of one version of the kernel's control groups.
struct GroupFiles {
  std::vector<std::string> limits;  // files with limits; the smallest one counts
  std::string usage;
  std::string inactive_file;  // this and the next two are keys of memory.stat, which include the
                              // groups below
  std::string active_file;
  std::string mapped_file;
};

const GroupFiles& version_1() {
  static const GroupFiles kFiles = {.limits = {"memory.limit_in_bytes"},
                                    .usage = "memory.usage_in_bytes",
                                    .inactive_file = "total_inactive_file",
                                    .active_file = "total_active_file",
                                    .mapped_file = "total_mapped_file"};
  return kFiles;
}

// Above memory.high the kernel refuses no memory, but slows the group down until it has returned
// some, which a server never does. So it counts as a limit.
const GroupFiles& version_2() {
  static const GroupFiles kFiles = {.limits = {"memory.max", "memory.high"},
                                    .usage = "memory.current",
                                    .inactive_file = "inactive_file",
                                    .active_file = "active_file",
                                    .mapped_file = "file_mapped"};
  return kFiles;
}

// The number in a one-line file such as memory.max; `missing` if there is none ("max", or no file).
int64_t number_in_file(const std::string& path, int64_t missing) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : missing;
}

// The number after `key` in a file of "key number" lines; 0 if there is none. A unit after the
// number, as in /proc/meminfo, is ignored.
int64_t number_after(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return 0;
}

// Page cache that the kernel drops when memory is needed: files read or written once, and files
// used again, unless a process maps them, as it does programs and their libraries.
int64_t reclaimable_bytes(const std::string& folder, const GroupFiles& files) {
  const std::string stat = folder + "/memory.stat";
  return number_after(stat, files.inactive_file) +
         std::max<int64_t>(
             0, number_after(stat, files.active_file) - number_after(stat, files.mapped_file));
}

// Whether to return a group's limit or the memory that it has left.
enum class Measure { kLimit, kLeft };

int64_t allowed_by_group(const std::string& folder, const GroupFiles& files, Measure measure) {
  int64_t limit = kUnlimited;
  for (const std::string& name : files.limits) {
    limit = std::min(limit, number_in_file(folder + "/" + name, kUnlimited));
  }
  if (measure == Measure::kLimit) return limit;
  const int64_t usage = number_in_file(folder + "/" + files.usage, -1);
  if (limit == kUnlimited || usage < 0) return kUnlimited;
  const int64_t needed = std::max<int64_t>(0, usage - reclaimable_bytes(folder, files));
  return std::max<int64_t>(0, limit - needed);
}

// A mounted hierarchy of control groups: the mount point, and the group that is visible as its
// root. In a container that may be the container's own group.
struct Mount {
  std::string point;
  std::string top;
};

// The smallest limit of `group` and its ancestors that are visible in the mount.
int64_t allowed_by_groups(const Mount& mount, std::string group, const GroupFiles& files,
                          Measure measure) {
  // Relative to the mount. A path that leads out of it names a group that is not visible.
  if (mount.top != "/" && group.starts_with(mount.top)) group.erase(0, mount.top.size());
  if (group.find("/..") != std::string::npos || !group.starts_with('/')) group.clear();
  int64_t left = kUnlimited;
  while (true) {
    left = std::min(left, allowed_by_group(mount.point + group, files, measure));
    if (group.empty()) return left;
    group.erase(group.rfind('/'));
  }
}

// Whether `word` occurs in a list of words such as "rw,memory".
bool lists(const std::string& text, std::string_view word) {
  std::istringstream words(text);
  for (std::string each; std::getline(words, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

// The mount of the hierarchy with this `type` and, for version 1, with the memory controller; its
// point is empty if there is none. A line of mountinfo: "31 23 0:28 TOP POINT rw - TYPE SOURCE
// OPTIONS", with any number of further words before the dash.
Mount find_mount(const std::string& root, std::string_view type) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash));
    std::istringstream after(line.substr(dash + 3));
    std::string skipped;
    Mount mount;
    std::string found;
    std::string options;
    before >> skipped >> skipped >> skipped >> mount.top >> mount.point;
    after >> found >> skipped >> options;
    if (found != type || (type == "cgroup" && !lists(options, "memory"))) continue;
    mount.point.insert(0, root);
    return mount;
  }
  return {};
}

// Reads /proc/self/cgroup, which contains "0::/group" for version 2 and "4:memory:/group" for
// version 1; a machine may have both.
int64_t allowed_by_control_groups(const std::string& root, Measure measure) {
  int64_t left = kUnlimited;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && !lists(controllers, "memory")) continue;
    const Mount mount = find_mount(root, version2 ? "cgroup2" : "cgroup");
    if (mount.point.empty()) continue;
    left = std::min(left, allowed_by_groups(mount, line.substr(second + 1),
                                            version2 ? version_2() : version_1(), measure));
  }
  return left;
}

// Bytes of address space left by `ulimit -v`. A line of /proc/self/limits:
// "Max address space  2048000000  unlimited  bytes".
int64_t left_of_address_space(const std::string& root) {
  constexpr std::string_view kName = "Max address space";
  std::ifstream file(root + "/proc/self/limits");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kName)) continue;
    std::istringstream words(line.substr(kName.size()));
    int64_t limit = 0;
    if (!(words >> limit)) return kUnlimited;  // the limit is the word "unlimited"
    const int64_t used = number_after(root + "/proc/self/status", "VmSize:") * 1024;
    return std::max<int64_t>(0, limit - used);
  }
  return kUnlimited;
}

}  // namespace

int64_t available_host_memory_bytes(const std::string& root) {
  const int64_t machine = number_after(root + "/proc/meminfo", "MemAvailable:") * 1024;
  return std::min(
      {machine, allowed_by_control_groups(root, Measure::kLeft), left_of_address_space(root)});
}

int64_t total_host_memory_bytes(const std::string& root) {
  const int64_t machine = number_after(root + "/proc/meminfo", "MemTotal:") * 1024;
  return std::min(machine, allowed_by_control_groups(root, Measure::kLimit));
}

}  // namespace heddle::device

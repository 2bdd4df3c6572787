// SPDX-License-Identifier: Apache-2.0
#include "server/admin/process_metrics.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

namespace heddle::server {
namespace {

double seconds_of(const timeval& time) {
  constexpr double kMicrosecond = 1e-6;
  return static_cast<double>(time.tv_sec) + kMicrosecond * static_cast<double>(time.tv_usec);
}

// The fields of /proc/self/stat after the program's name, which may contain spaces. The first of
// them is field 3 of proc(5).
std::vector<std::string> stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

// Time at which the machine booted, seconds since 1970; 0 if /proc does not contain it.
double boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string key; file >> key;) {
    double value = 0;
    if (key == "btime" && file >> value) return value;
  }
  return 0;
}

}  // namespace

ProcessMetrics::ProcessMetrics(const MetricLabels& build)
    : registry_(MetricNames::kHeddle, {}),
      cpu_seconds_(registry_.counter({"process_cpu_seconds_total"},
                                     "User and system CPU time of the process.")),
      resident_bytes_(registry_.gauge({"process_resident_memory_bytes"}, "Memory in RAM.")),
      virtual_bytes_(registry_.gauge({"process_virtual_memory_bytes"}, "Address space.")),
      open_files_(registry_.gauge({"process_open_fds"}, "Open files and sockets.")),
      max_files_(registry_.gauge({"process_max_fds"}, "How many may be open.")),
      start_seconds_(registry_.gauge({"process_start_time_seconds"},
                                     "When the process started, in seconds since 1970.")),
      boot_seconds_(boot_time()) {
  registry_.gauge({"heddle_build_info"}, "1; the labels say what runs.", build).set(1);
}

std::string ProcessMetrics::to_text() {
  rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const double seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    cpu_seconds_.add(std::max(0.0, seconds - counted_cpu_seconds_));
    counted_cpu_seconds_ = std::max(seconds, counted_cpu_seconds_);
  }
  constexpr size_t kFirstField = 3, kStartTime = 22, kVirtual = 23, kResident = 24;
  const std::vector<std::string> fields = stat_fields();
  if (fields.size() > kResident - kFirstField) {
    const auto field = [&fields](size_t number) { return std::stod(fields[number - kFirstField]); };
    virtual_bytes_.set(field(kVirtual));
    resident_bytes_.set(field(kResident) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    start_seconds_.set(boot_seconds_ + field(kStartTime) / ticks);
  }
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (!error) open_files_.set(static_cast<double>(std::distance(begin(files), end(files))));
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    max_files_.set(static_cast<double>(limit.rlim_cur));
  }
  return registry_.to_text();
}

}  // namespace heddle::server

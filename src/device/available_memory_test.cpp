// SPDX-License-Identifier: Apache-2.0
#include "device/available_memory.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace heddle::device {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

// A folder with files as /proc and /sys/fs/cgroup have them: 64 GiB available, no group.
class FakeMachine {
 public:
  FakeMachine()
      : root_(std::filesystem::temp_directory_path() /
              fmt::format("heddle_available_memory_{}", getpid())) {
    std::filesystem::remove_all(root_);
    write("/proc/meminfo",
          "MemTotal:       98765432 kB\nMemFree:        1 kB\n"
          "MemAvailable:   67108864 kB\nHugePages_Total:       0\n");
  }

  ~FakeMachine() { std::filesystem::remove_all(root_); }

  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  // This process is in `group` of the one hierarchy of version 2, whose mount shows `top` as "/".
  void use_version_2(const std::string& group, const std::string& top = "/") const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo",
          "23 1 0:20 / /proc rw,nosuid - proc proc rw\n"
          "29 23 0:26 " +
              top +
              " /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n");
  }

  void use_version_1(const std::string& group, const std::string& top = "/") const {
    write("/proc/self/cgroup", "12:cpu,cpuacct:/elsewhere\n4:memory:" + group + "\n0::/\n");
    write("/proc/self/mountinfo",
          "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
          "35 31 0:32 " +
              top +
              " /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
              "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  }

  void limit_version_2(const std::string& group, int64_t max, int64_t current,
                       int64_t inactive_file = 0) const {
    const std::string folder = "/sys/fs/cgroup" + group;
    write(folder + "/memory.max", fmt::format("{}\n", max));
    write(folder + "/memory.high", "max\n");
    write(folder + "/memory.current", fmt::format("{}\n", current));
    write(folder + "/memory.stat", fmt::format("anon 1\nfile {0}\ninactive_anon 7\n"
                                               "active_file 0\ninactive_file {0}\n",
                                               inactive_file));
  }

  [[nodiscard]] int64_t available() const { return available_host_memory_bytes(root_.string()); }

  [[nodiscard]] int64_t total() const { return total_host_memory_bytes(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST(AvailableMemoryTest, IsTheMachinesWithoutControlGroups) {
  const FakeMachine machine;
  EXPECT_EQ(machine.available(), 64 * kGib);
  machine.use_version_2("/");
  EXPECT_EQ(machine.available(), 64 * kGib) << "the topmost group has no limit";
  EXPECT_GT(available_host_memory_bytes(), 0) << "this machine";
}

TEST(AvailableMemoryTest, TheTotalIsTheLimitWhateverIsUsed) {
  const FakeMachine machine;
  EXPECT_EQ(machine.total(), int64_t{98765432} * 1024);
  machine.use_version_2("/");
  machine.limit_version_2("", 16 * kGib, 15 * kGib);
  EXPECT_EQ(machine.total(), 16 * kGib);
  EXPECT_GE(total_host_memory_bytes(), available_host_memory_bytes()) << "this machine";
}

// As in a container that has just downloaded its weights: all but a little of the limit is used,
// nearly all of it page cache.
TEST(AvailableMemoryTest, DoesNotCountPageCacheAsUsed) {
  const FakeMachine machine;
  machine.use_version_2("/");
  machine.limit_version_2("", 16 * kGib, 16 * kGib - 1, 15 * kGib);
  EXPECT_EQ(machine.available(), 15 * kGib + 1);

  // Read again, pages become active; those that programs map are needed.
  machine.write(
      "/sys/fs/cgroup/memory.stat",
      fmt::format("file_mapped {}\ninactive_file {}\nactive_file {}\n", kGib, 4 * kGib, 6 * kGib));
  EXPECT_EQ(machine.available(), 9 * kGib + 1);
}

TEST(AvailableMemoryTest, TheTightestOfNestedGroupsCounts) {
  const FakeMachine machine;
  machine.use_version_2("/kubepods/pod7/engine");
  machine.limit_version_2("/kubepods/pod7/engine", 32 * kGib, 2 * kGib, kGib);
  EXPECT_EQ(machine.available(), 31 * kGib);
  machine.limit_version_2("/kubepods/pod7", 8 * kGib, 5 * kGib, kGib);
  EXPECT_EQ(machine.available(), 4 * kGib);
  machine.limit_version_2("/kubepods", 40 * kGib, 39 * kGib);
  EXPECT_EQ(machine.available(), kGib);
  machine.limit_version_2("/kubepods", 40 * kGib, 41 * kGib);
  EXPECT_EQ(machine.available(), 0) << "more than the limit is used";
  machine.limit_version_2("/another", kGib, kGib);
  machine.limit_version_2("/kubepods", 40 * kGib, 0);
  EXPECT_EQ(machine.available(), 4 * kGib) << "a group this process is not in";
}

TEST(AvailableMemoryTest, StaysBelowTheLimitThatSlowsAGroupDown) {
  const FakeMachine machine;
  machine.use_version_2("/service");
  machine.limit_version_2("/service", 8 * kGib, kGib);
  machine.write("/sys/fs/cgroup/service/memory.high", fmt::format("{}\n", 6 * kGib));
  EXPECT_EQ(machine.available(), 5 * kGib);
}

TEST(AvailableMemoryTest, FindsTheGroupBelowAMountThatDoesNotBeginAtTheTop) {
  const FakeMachine machine;
  machine.use_version_2("/docker/a1b2/inner", "/docker/a1b2");
  machine.limit_version_2("", 8 * kGib, 2 * kGib);
  machine.limit_version_2("/inner", 4 * kGib, kGib);
  EXPECT_EQ(machine.available(), 3 * kGib);
  machine.use_version_2("/../sibling");  // of a process that was moved out of its namespace
  EXPECT_EQ(machine.available(), 6 * kGib);
}

TEST(AvailableMemoryTest, ReadsTheLimitsOfVersion1) {
  const FakeMachine machine;
  machine.use_version_1("/docker/a1b2", "/docker/a1b2");
  const std::string folder = "/sys/fs/cgroup/memory";
  machine.write(folder + "/memory.limit_in_bytes", "9223372036854771712\n");
  machine.write(folder + "/memory.usage_in_bytes", fmt::format("{}\n", 7 * kGib));
  machine.write(folder + "/memory.stat",
                fmt::format("inactive_file 1\ntotal_inactive_file {}\ntotal_active_file {}\n"
                            "total_mapped_file {}\n",
                            5 * kGib, kGib, kGib / 2));
  EXPECT_EQ(machine.available(), 64 * kGib) << "no limit is a very large one";
  machine.write(folder + "/memory.limit_in_bytes", fmt::format("{}\n", 8 * kGib));
  EXPECT_EQ(machine.available(), 6 * kGib + kGib / 2);
}

TEST(AvailableMemoryTest, SurvivesFilesItCannotRead) {
  const FakeMachine machine;
  machine.use_version_2("/service");
  machine.write("/sys/fs/cgroup/service/memory.max", "max\n");
  machine.write("/sys/fs/cgroup/service/memory.current", "none\n");
  EXPECT_EQ(machine.available(), 64 * kGib);
  machine.write("/proc/self/cgroup", "\n:\nnothing\n0:\n");
  machine.write("/proc/self/mountinfo", "\n - \n - cgroup2\n29 23 - cgroup2 x y\n");
  EXPECT_EQ(machine.available(), 64 * kGib);
  machine.write("/proc/meminfo", "");
  EXPECT_EQ(machine.available(), 0);
}

TEST(AvailableMemory, CountsWhatTheShellAllows) {
  const FakeMachine machine;
  machine.write("/proc/self/status", "Name:\theddle\nVmSize:\t 1048576 kB\n");
  machine.write("/proc/self/limits",
                "Limit                     Soft Limit           Hard Limit           Units     \n"
                "Max address space         3221225472           unlimited            bytes     \n");
  EXPECT_EQ(machine.available(), 2 * kGib);
  machine.write("/proc/self/limits",
                "Max address space         unlimited            unlimited            bytes     \n");
  EXPECT_EQ(machine.available(), 64 * kGib);
}

}  // namespace
}  // namespace heddle::device

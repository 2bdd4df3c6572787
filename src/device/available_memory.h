// SPDX-License-Identifier: Apache-2.0
// The memory that this process may still use, on a machine that may limit it through control
// groups.
//
// Threading: thread-safe; keeps no state.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::device {

// The smallest of the machine's available memory and the memory that each control group of this
// process has left: its own group and all groups above it, of version 1 and 2. The usage of a group
// is counted without the page cache that the kernel drops before it refuses memory; otherwise a
// container that has just written its weights to disk would have nothing left. The address space
// that the shell allows (`ulimit -v`) is a limit as well.
//
// Reads small files in /proc and /sys/fs/cgroup, all below `root`: the folder of a test, or "" for
// the machine's own. A missing file means no limit.
[[nodiscard]] int64_t available_host_memory_bytes(const std::string& root = "");

// The smallest of the machine's memory and the limits of the same control groups.
[[nodiscard]] int64_t total_host_memory_bytes(const std::string& root = "");

}  // namespace heddle::device

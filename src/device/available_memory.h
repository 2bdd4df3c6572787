// SPDX-License-Identifier: Apache-2.0
// The memory this process may still use, on a machine that may limit it through control groups.
//
// Threading: thread-safe; nothing is kept.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::device {

// The least of what the machine has available and what each memory control group that this process
// is in leaves: its own group and those above it, of version 1 and 2. A group's usage counts
// without the page cache that the kernel drops before it refuses memory; a container that has just
// written its weights to disk would have nothing left otherwise. The address space that the shell
// allows (`ulimit -v`) counts, too.
//
// Reads small files of /proc and /sys/fs/cgroup, all below `root`: a test's folder, or "" for the
// machine's own. A file that is missing limits nothing.
[[nodiscard]] int64_t available_host_memory_bytes(const std::string& root = "");

// The least of what the machine has and what those groups may use at most.
[[nodiscard]] int64_t total_host_memory_bytes(const std::string& root = "");

}  // namespace heddle::device

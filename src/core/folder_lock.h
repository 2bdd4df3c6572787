// SPDX-License-Identifier: Apache-2.0
// FolderLock: a lock on a folder that at most one process holds at a time. It creates no file in
// the folder, and the lock of a process that dies is released.
//
// Threading: thread-confined.
// Cost:      the constructor waits for the lock, `max_wait_seconds` at most.
#pragma once

#include <filesystem>

namespace heddle {

class FolderLock {
 public:
  // Tries to lock the folder. The lock is not held if the time is up (is_busy()), or if the folder
  // cannot be opened or locked. The caller then works without it, or reports that the folder is
  // busy.
  FolderLock(const std::filesystem::path& folder, double max_wait_seconds);
  ~FolderLock();

  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Whether another FolderLock held the lock until the time was up.
  [[nodiscard]] bool is_busy() const { return is_busy_; }

 private:
  int file_;  // file descriptor of the folder; negative: the lock is not held
  bool is_busy_ = false;
};

}  // namespace heddle

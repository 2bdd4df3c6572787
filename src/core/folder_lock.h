// SPDX-License-Identifier: Apache-2.0
// FolderLock: of all processes that ask for the lock of a folder one has it at a time. Nothing is
// left in the folder, and a process that dies gives the lock back.
//
// Threading: thread-confined.
// Cost:      a constructor that waits, `max_wait_seconds` at most.
#pragma once

#include <filesystem>

namespace heddle {

class FolderLock {
 public:
  // Is not locked after a timeout (is_busy()) or if the folder cannot be opened or locked. Callers
  // then work without the lock, or report that the folder is busy.
  FolderLock(const std::filesystem::path& folder, double max_wait_seconds);
  ~FolderLock();

  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Whether another one had the lock until the time was up.
  [[nodiscard]] bool is_busy() const { return is_busy_; }

 private:
  int file_;  // negative: none
  bool is_busy_ = false;
};

}  // namespace heddle

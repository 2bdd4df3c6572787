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
  // Without the lock once the time is up, and where the folder cannot be opened or locked: callers
  // do then what they would do alone.
  FolderLock(const std::filesystem::path& folder, double max_wait_seconds);
  ~FolderLock();

  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_;  // negative: none
};

}  // namespace heddle

// SPDX-License-Identifier: Apache-2.0
#include "core/folder_lock.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace heddle {

FolderLock::FolderLock(const std::filesystem::path& folder, double max_wait_seconds)
    : file_(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(max_wait_seconds);
  while (file_ >= 0 && ::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;  // for example, the file system has no locks
    is_busy_ = std::chrono::steady_clock::now() >= end;
    if (is_busy_) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace heddle

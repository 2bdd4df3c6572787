// SPDX-License-Identifier: Apache-2.0
#include "core/folder_lock.h"

#include <filesystem>
#include <optional>

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(FolderLock, IsBusyOnlyWhileAnotherOneHasIt) {
  const std::filesystem::path folder = ::testing::TempDir() + "heddle_folder_lock";
  std::filesystem::create_directories(folder / "other");
  std::optional<FolderLock> first;
  first.emplace(folder, 60);
  EXPECT_FALSE(first->is_busy());
  EXPECT_TRUE(FolderLock(folder, 0).is_busy());
  EXPECT_TRUE(FolderLock(folder, 0.01).is_busy());
  EXPECT_FALSE(FolderLock(folder / "other", 0).is_busy()) << "a lock of its own";
  EXPECT_FALSE(FolderLock(folder / "missing", 0).is_busy()) << "there is nothing to lock";
  first.reset();
  EXPECT_FALSE(FolderLock(folder, 0).is_busy());
}

}  // namespace
}  // namespace heddle

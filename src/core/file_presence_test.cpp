// SPDX-License-Identifier: Apache-2.0
#include "core/file_presence.h"

#include <cerrno>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace heddle {
namespace {

namespace fs = std::filesystem;

class FilePresenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) /
              (std::string("heddle_files_") + test->name() + std::to_string(::getpid()));
    fs::create_directories(folder_ / "blobs");
    std::ofstream(folder_ / "blobs" / "abc") << "{}";
  }

  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }

  // The message, or "present" or "absent".
  [[nodiscard]] std::string look(const fs::path& name) const {
    const Result<bool> exists = file_exists(folder_ / name);
    if (!exists.ok()) return exists.status().message();
    return *exists ? "present" : "absent";
  }

  fs::path folder_;
};

TEST_F(FilePresenceTest, TellsWhatIsThereFromWhatIsNot) {
  EXPECT_EQ(look("blobs/abc"), "present");
  EXPECT_EQ(look("blobs"), "present");
  EXPECT_EQ(look("none"), "absent");
  EXPECT_EQ(look("none/none"), "absent");
  EXPECT_EQ(look("blobs/abc/none"), "absent");
  fs::create_symlink("blobs/abc", folder_ / "link");
  EXPECT_EQ(look("link"), "present");
}

TEST_F(FilePresenceTest, NamesALinkToNothingAndItsTarget) {
  fs::create_symlink("blobs/def", folder_ / "config.json");
  fs::create_symlink(folder_ / "config.json", folder_ / "second.json");
  fs::create_symlink("circle", folder_ / "circle");
  EXPECT_EQ(look("config.json"), (folder_ / "config.json").string() + " is a link to " +
                                     (folder_ / "blobs/def").string() +
                                     ", which does not exist; download the model again");
  EXPECT_NE(look("second.json").find("is a link to " + (folder_ / "config.json").string()),
            std::string::npos);
  EXPECT_NE(look("circle").find("leads back to it"), std::string::npos) << look("circle");
  EXPECT_EQ(file_exists(folder_ / "config.json").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(cannot_open(folder_ / "none", ENOENT).code(), StatusCode::kNotFound);
  EXPECT_NE(cannot_open("~/a.jinja", ENOENT).message().find("not expanded its ~"),
            std::string::npos);
}

TEST_F(FilePresenceTest, NamesWhatMayNotBeRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  fs::permissions(folder_ / "blobs" / "abc", fs::perms::none);
  EXPECT_NE(look("blobs/abc").find("abc: Permission denied; let the user"), std::string::npos);
  fs::permissions(folder_ / "blobs", fs::perms::none);
  EXPECT_NE(look("blobs/none").find("none: Permission denied"), std::string::npos);
  EXPECT_EQ(look("blobs"), "present");
  EXPECT_NE(names_in_folder(folder_ / "blobs").status().message().find("Permission denied"),
            std::string::npos);
  fs::permissions(folder_ / "blobs", fs::perms::owner_all);
}

TEST_F(FilePresenceTest, ListsNamesInOrder) {
  fs::create_symlink("nothing", folder_ / "aaa");
  const auto names = names_in_folder(folder_);
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, (std::vector<std::string>{"aaa", "blobs"}));
  EXPECT_EQ(names_in_folder(folder_ / "none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace heddle

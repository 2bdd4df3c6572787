// SPDX-License-Identifier: Apache-2.0
#include "core/file_presence.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/log.h"

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
                                     ", which does not exist; download it again: `hf download "
                                     "OWNER/MODEL config.json --local-dir " +
                                     folder_.string() + "`");
  EXPECT_NE(look("second.json").find("is a link to " + (folder_ / "config.json").string()),
            std::string::npos);
  EXPECT_NE(look("circle").find("leads back to it"), std::string::npos) << look("circle");
  EXPECT_EQ(file_exists(folder_ / "config.json").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(cannot_open(folder_ / "none", ENOENT).code(), StatusCode::kNotFound);
  EXPECT_NE(cannot_open("~/a.jinja", ENOENT).message().find("not expanded its ~"),
            std::string::npos);
}

TEST_F(FilePresenceTest, NamesTheModelOfACachedFile) {
  for (const auto& [file, command] : std::vector<std::pair<std::string, std::string>>{
           {"models--Qwen--Qwen3-0.6B/snapshots/1a2b/config.json",
            "`hf download Qwen/Qwen3-0.6B config.json`"},
           {"models--a--b--c/snapshots/1a2b/sub/model.safetensors",
            "`hf download a/b--c sub/model.safetensors`"},
           {"models--gpt2/snapshots/1a2b/config.json", "`hf download OWNER/MODEL config.json"}}) {
    fs::create_directories((folder_ / file).parent_path());
    fs::create_symlink("../../blobs/none", folder_ / file);
    EXPECT_NE(look(file).find("download it again: " + command), std::string::npos) << look(file);
  }
}

TEST_F(FilePresenceTest, AnOptionalLinkToNothingIsLoggedOnce) {
  fs::create_symlink("blobs/def", folder_ / "extra.json");
  fs::create_symlink("circle", folder_ / "circle");
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    for (const char* name : {"extra.json", "circle", "none", "blobs/abc"}) {
      const Result<bool> exists = optional_file_exists(folder_ / name);
      ASSERT_TRUE(exists.ok()) << exists.status().message();
      EXPECT_EQ(*exists, name == std::string("blobs/abc"));
    }
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2) << lines;
  EXPECT_NE(lines.find("extra.json is a link to "), std::string::npos) << lines;
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

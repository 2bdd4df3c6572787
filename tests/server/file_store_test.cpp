// SPDX-License-Identifier: Apache-2.0
#include "server/file_store.h"

#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() { std::filesystem::create_directories(folder); }

  ~FileStoreTest() override { std::filesystem::remove_all(folder); }

  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();

  static std::unique_ptr<FileStore> open(const std::filesystem::path& where,
                                         int64_t max_bytes = 1000) {
    auto store = FileStore::open(where, max_bytes);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(store).value();
  }

  static StoredFile named(std::string name, std::string holder = {}) {
    return {.id = {},
            .name = std::move(name),
            .purpose = "batch",
            .holder = std::move(holder),
            .created = 7};
  }

  [[nodiscard]] int num_entries() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
    return count;
  }
};

TEST_F(FileStoreTest, KeepsFilesAcrossRestarts) {
  std::string id;
  {
    const auto store = open(folder);
    const auto file = store->add(named("../../etc/passwd", "alice"), "hello");
    ASSERT_TRUE(file.ok());
    id = file->id;
    EXPECT_EQ(num_entries(), 2) << "nothing is written elsewhere";
  }
  const auto store = open(folder);
  const auto file = store->find(id, "alice");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->name, "../../etc/passwd");
  EXPECT_EQ(file->num_bytes, 5);
  EXPECT_EQ(file->created, 7);
  EXPECT_EQ(*store->read(id), "hello");
  EXPECT_FALSE(store->find(id, "bob").has_value());
  EXPECT_FALSE(store->remove(id, "bob"));
  EXPECT_TRUE(store->remove(id, "alice"));
  EXPECT_EQ(num_entries(), 0);
  EXPECT_EQ(store->read(id).status().code(), StatusCode::kNotFound);
}

TEST_F(FileStoreTest, ForeignFilesAreLeftAlone) {
  std::ofstream(folder / "notes.json") << "{\"filename\": 1}";
  std::ofstream(folder / "list.json") << "[";
  std::ofstream(folder / "alone.json")
      << R"({"filename": "a", "purpose": "batch", "holder": "", "created_at": 1})";
  const auto store = open(folder);
  EXPECT_TRUE(store->list("").empty());
  EXPECT_EQ(num_entries(), 3);
}

TEST_F(FileStoreTest, IsBounded) {
  const auto store = open(folder, 10);
  const auto first = store->add(named("a"), "123456");
  ASSERT_TRUE(first.ok());
  const auto second = store->add(named("b"), "12345");
  EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(second.status().message(), HasSubstr("6 of them are in use"));
  EXPECT_EQ(num_entries(), 2) << "nothing of it stays";
  EXPECT_TRUE(store->remove(first->id, ""));
  EXPECT_TRUE(store->add(named("b"), "1234567890").ok());
}

TEST_F(FileStoreTest, AWriterThatDoesNotFinishLeavesNothing) {
  const auto store = open(folder, 10);
  {
    auto writer = store->create(named("a"));
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->append("1234567890").ok());
    EXPECT_FALSE(store->add(named("b"), "1").ok()) << "what is being written counts";
    EXPECT_TRUE(store->list("").empty());
  }
  EXPECT_EQ(num_entries(), 0);
  EXPECT_TRUE(store->add(named("b"), "1").ok());
}

TEST_F(FileStoreTest, WithoutAFolderATemporaryOneComesAndGoes) {
  ::setenv("TMPDIR", folder.c_str(), 1);
  {
    const auto store = open({});
    EXPECT_EQ(num_entries(), 0) << "none is made before it is needed";
    const auto file = store->add(named("a"), "1");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(*store->read(file->id), "1");
    EXPECT_EQ(num_entries(), 1);
  }
  EXPECT_EQ(num_entries(), 0);
  ::unsetenv("TMPDIR");
}

TEST_F(FileStoreTest, AFolderThatCannotBeMadeIsAnError) {
  std::ofstream(folder / "file") << "x";
  const auto store = FileStore::open(folder / "file" / "below", 10);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr((folder / "file" / "below").string()));
}

}  // namespace
}  // namespace heddle::server

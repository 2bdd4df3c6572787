// SPDX-License-Identifier: Apache-2.0
#include "server/storage/file_store.h"

#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() {
    set_log_level(LogLevel::kOff);
    std::filesystem::create_directories(folder);
  }

  ~FileStoreTest() override {
    std::filesystem::remove_all(folder);
    set_log_level(LogLevel::kInfo);
  }

  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();

  static std::unique_ptr<FileStore> open(const std::filesystem::path& where,
                                         int64_t max_bytes = 1000, double share = 1) {
    auto store = FileStore::open(where, max_bytes, share);
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
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename() != "heddle.lock") ++count;
    }
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

constexpr const char* kSomeId = "file-0123456789abcdef0123456789abcdef";
constexpr const char* kDescription =
    R"({"filename": "a", "purpose": "batch", "holder": "", "created_at": 1})";

TEST_F(FileStoreTest, BytesWithoutADescriptionAreRemovedOrCounted) {
  const std::string kept = "file-" + std::string(32, 'a');
  std::ofstream(folder / kSomeId) << "123";
  std::ofstream(folder / kept) << "12345";
  std::ofstream(folder / (std::string(kSomeId) + ".json.tmp")) << "{";
  std::ofstream(folder / "file-notes") << "mine";
  const auto store = open(folder);
  EXPECT_EQ(store->num_bytes(), 8);
  store->remove_orphans({kept});
  EXPECT_EQ(store->num_bytes(), 5);
  EXPECT_TRUE(store->list("").empty());
  EXPECT_FALSE(std::filesystem::exists(folder / kSomeId));
  EXPECT_TRUE(std::filesystem::exists(folder / kept));
  EXPECT_TRUE(std::filesystem::exists(folder / "file-notes"));
  EXPECT_EQ(num_entries(), 2);
}

TEST_F(FileStoreTest, AFileWhoseDescriptionIsDamagedStaysAndIsCounted) {
  std::ofstream(folder / kSomeId) << "123";
  std::ofstream(folder / (std::string(kSomeId) + ".json")) << "{\"filename\"";
  const auto store = open(folder);
  store->remove_orphans({});
  EXPECT_EQ(store->num_bytes(), 3);
  EXPECT_TRUE(store->list("").empty());
  EXPECT_EQ(num_entries(), 2);
}

TEST_F(FileStoreTest, ADescriptionWithoutBytesIsRemoved) {
  std::ofstream(folder / (std::string(kSomeId) + ".json")) << kDescription;
  const auto store = open(folder);
  EXPECT_EQ(num_entries(), 0);
}

TEST_F(FileStoreTest, SymbolicLinksAndPipesAreNotFollowed) {
  const std::string id = kSomeId;
  std::ofstream(folder / "secret") << "secret";
  const auto plant = [&](const std::string& name) {
    std::filesystem::create_symlink(folder / "secret", folder / name);
  };
  plant(id);
  std::ofstream(folder / (id + ".json")) << kDescription;
  const std::string described = "file-" + std::string(32, 'b');
  std::ofstream(folder / described) << "bytes";
  std::ofstream(folder / "description") << kDescription;
  std::filesystem::create_symlink(folder / "description", folder / (described + ".json"));
  const std::string pipe = "file-" + std::string(32, 'c');
  ASSERT_EQ(::mkfifo((folder / pipe).c_str(), 0600), 0);
  std::ofstream(folder / (pipe + ".json")) << kDescription;
  const std::string target = "file-" + std::string(32, 'd');
  plant(target);
  plant("batch_" + std::string(32, 'e') + ".json");
  plant("batch_" + std::string(32, 'f') + ".json.tmp");
  const auto store = open(folder);
  EXPECT_TRUE(store->list("").empty());
  for (const std::string& name : {id, pipe, target}) {
    EXPECT_EQ(store->open_for_reading(name), nullptr);
    EXPECT_EQ(store->read(name).status().code(), StatusCode::kNotFound);
  }
  EXPECT_TRUE(store->read_records()->empty());
  StoredFile output = named("a");
  output.id = target;
  EXPECT_EQ(store->create(output).status().code(), StatusCode::kInternal);
  EXPECT_EQ(store->resume(output).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store->save_record("batch_" + std::string(32, 'f'), "{}").ok());
  std::ifstream secret(folder / "secret");
  std::string text;
  secret >> text;
  EXPECT_EQ(text, "secret");
}

TEST_F(FileStoreTest, FilesOfEarlierServersBecomePrivate) {
  std::ofstream(folder / kSomeId) << "123";
  std::ofstream(folder / (std::string(kSomeId) + ".json")) << kDescription;
  std::filesystem::permissions(folder / kSomeId, std::filesystem::perms(0644));
  const auto store = open(folder);
  EXPECT_TRUE(store->find(kSomeId, "").has_value());
  EXPECT_EQ(std::filesystem::status(folder / kSomeId).permissions(), std::filesystem::perms(0600));
}

TEST_F(FileStoreTest, OneKeyHasItsShare) {
  const auto store = open(folder, 20, 0.5);
  ASSERT_TRUE(store->add(named("a", "alice"), "123456").ok());
  const auto refused = store->add(named("b", "alice"), "12345");
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("10 bytes of files are the share of a key"));
  EXPECT_TRUE(store->add(named("c", "bob"), "1234567890").ok());
  EXPECT_FALSE(store->add(named("d", "carol"), "12345").ok()) << "4 of 20 are left";
  EXPECT_TRUE(store->add(named("d", "carol"), "1234").ok());
}

TEST_F(FileStoreTest, TwoStoresDoNotShareAFolder) {
  {
    const auto store = open(folder);
    const auto second = FileStore::open(folder, 10);
    EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
    EXPECT_THAT(second.status().message(), HasSubstr(folder.string()));
  }
  EXPECT_TRUE(FileStore::open(folder, 10).ok());
}

TEST_F(FileStoreTest, TemporaryFoldersOfKilledServersAreRemoved) {
  ::setenv("TMPDIR", folder.c_str(), 1);
  const auto living = open({});
  ASSERT_TRUE(living->add(named("a"), "1").ok());
  const auto plant = [this](const std::string& name, bool with_lock) {
    std::filesystem::create_directory(folder / name);
    std::ofstream(folder / name / kSomeId) << "123";
    if (with_lock) std::ofstream(folder / name / "heddle.lock") << "1\n";
  };
  plant("heddle-files-killed", true);
  plant("heddle-files-other", false);
  plant("elsewhere", true);
  std::filesystem::create_directory_symlink(folder / "elsewhere", folder / "heddle-files-link");
  const auto next = open({});
  EXPECT_FALSE(std::filesystem::exists(folder / "heddle-files-killed"));
  EXPECT_TRUE(std::filesystem::exists(folder / "heddle-files-other" / kSomeId));
  EXPECT_TRUE(std::filesystem::exists(folder / "elsewhere" / kSomeId));
  EXPECT_EQ(*living->read(living->list("").front().id), "1");
  ::unsetenv("TMPDIR");
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

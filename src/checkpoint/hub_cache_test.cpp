// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_cache.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

namespace fs = std::filesystem;

class HubCache : public ::testing::Test {
 protected:
  HubCache() {
    for (const char* name : {"HF_HOME", "XDG_CACHE_HOME"}) ::unsetenv(name);
    ::setenv("HF_HUB_CACHE", cache_.path().c_str(), 1);
  }

  ~HubCache() override { ::unsetenv("HF_HUB_CACHE"); }

  // As `hf download` leaves it: files are links into blobs/.
  fs::path add(const std::string& folder, const std::string& commit, const std::string& ref) {
    const fs::path repository = cache_.path() / folder;
    const fs::path snapshot = repository / "snapshots" / commit;
    fs::create_directories(snapshot);
    fs::create_directories(repository / "blobs");
    fs::create_directories(repository / "refs");
    cache_.write(folder + "/blobs/" + commit, "{}");
    fs::create_symlink("../../blobs/" + commit, snapshot / "config.json");
    if (!ref.empty()) cache_.write(folder + "/refs/main", ref);
    return snapshot;
  }

  static std::string error_of(const std::string& name) {
    return std::string(find_model(name).status().message());
  }

  testing::TemporaryFolder cache_;
};

TEST_F(HubCache, FindsAModelByEachOfItsNames) {
  const fs::path snapshot = add("models--Qwen--Qwen3-0.6B", "f00", "f00\n");
  const fs::path repository = cache_.path() / "models--Qwen--Qwen3-0.6B";
  for (const std::string& name :
       {std::string("Qwen/Qwen3-0.6B"), std::string("models--Qwen--Qwen3-0.6B"),
        repository.string(), repository.string() + "/", snapshot.string()}) {
    const Result<fs::path> found = find_model(name);
    ASSERT_TRUE(found.ok()) << name << ": " << found.status().message();
    EXPECT_EQ(*found, snapshot) << name;
  }
  const fs::path without_owner = add("models--gpt2", "f00", "f00");
  EXPECT_EQ(find_model("gpt2").value(), without_owner);
  EXPECT_EQ(model_name(without_owner), "gpt2");
  EXPECT_EQ(model_name(snapshot), "Qwen/Qwen3-0.6B");
  EXPECT_EQ(model_name(cache_.path() / "plain"), "plain");
}

TEST_F(HubCache, ModelsInGgufFilesAreCalledAsTheFilesAre) {
  EXPECT_EQ(model_name("models/Qwen3-8B-Q4_K_M.gguf"), "Qwen3-8B-Q4_K_M");
  EXPECT_EQ(model_name("big-Q8_0-00001-of-00003.gguf"), "big-Q8_0");
  EXPECT_EQ(model_name("odd-1-of-3.gguf"), "odd-1-of-3");
  // A file of the cache is a link to one that is named by its hash.
  const fs::path blob = cache_.path() / "blobs" / "5f3a";
  fs::create_directories(blob.parent_path());
  std::ofstream(blob) << "GGUF";
  const fs::path snapshot = add("models--a--b-GGUF", "f00", "f00\n");
  fs::create_symlink(blob, snapshot / "b-Q4_0.gguf");
  EXPECT_EQ(model_name(snapshot / "b-Q4_0.gguf"), "b-Q4_0");
}

TEST_F(HubCache, TakesTheSnapshotOfTheBranch) {
  add("models--a--b--c", "old", "new");
  const fs::path snapshot = add("models--a--b--c", "new", "new");
  EXPECT_EQ(find_model("a/b--c").value(), snapshot);
  const fs::path single = add("models--a--without-ref", "only", "");
  EXPECT_EQ(find_model("a/without-ref").value(), single);
  add("models--a--two", "one", "");
  add("models--a--two", "two", "");
  EXPECT_THAT(error_of("a/two"),
              AllOf(HasSubstr("has 2 snapshots and no refs/main"), HasSubstr("snapshots/one")));
}

TEST_F(HubCache, SaysWhatADownloadLacks) {
  fs::create_directories(cache_.path() / "models--a--empty" / "blobs");
  EXPECT_THAT(error_of("a/empty"),
              AllOf(HasSubstr("it has no snapshot"), HasSubstr("`hf download a/empty` goes on")));
  add("models--a--moved", "old", "new");
  EXPECT_THAT(error_of("a/moved"), HasSubstr("the snapshot of refs/main is missing"));
  fs::remove(add("models--a--half", "f00", "f00") / "config.json");
  EXPECT_THAT(error_of("a/half"), HasSubstr("its snapshot is empty"));
}

// So that check_model_folder() says what it is.
TEST_F(HubCache, GivesASnapshotOfAnotherFormat) {
  const fs::path snapshot = add("models--a--b-GGUF", "f00", "f00");
  fs::rename(snapshot / "config.json", snapshot / "b-Q4_K_M.gguf");
  EXPECT_EQ(find_model("a/b-GGUF").value(), snapshot);
}

TEST_F(HubCache, LeavesOtherNamesAlone) {
  add("models--a--b", "f00", "f00");
  for (const char* name : {"a/other", "b", "a/b/c", "./a", "/a/b/c", "~/a", "a/", "/", ""}) {
    EXPECT_EQ(find_model(name).value(), fs::path(name));
  }
}

TEST_F(HubCache, LiesWhereTheEnvironmentSays) {
  EXPECT_EQ(hub_cache(), cache_.path());
  ::unsetenv("HF_HUB_CACHE");
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(hub_cache(), "/home/someone/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(hub_cache(), "/cache/huggingface/hub");
  ::setenv("HF_HOME", "/data/hf", 1);
  EXPECT_EQ(hub_cache(), "/data/hf/hub");
  ::setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(hub_cache(), "/home/someone/hf/hub");
  ::setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
  EXPECT_EQ(hub_cache(), "/old");
  ::unsetenv("HUGGINGFACE_HUB_CACHE");
  ::unsetenv("HF_HOME");
  ::unsetenv("XDG_CACHE_HOME");
}

TEST_F(HubCache, ListsItsModels) {
  EXPECT_THAT(cached_models(), SizeIs(0));
  const fs::path snapshot = add("models--b--whole", "f00", "f00");
  fs::create_directories(cache_.path() / "models--a--broken");
  fs::create_directories(cache_.path() / "datasets--a--b" / "snapshots");
  const std::vector<CachedModel> models = cached_models();
  ASSERT_THAT(models, SizeIs(2));
  EXPECT_EQ(models[0].name, "a/broken");
  EXPECT_EQ(models[0].folder, fs::path());
  EXPECT_EQ(models[1].name, "b/whole");
  EXPECT_EQ(models[1].folder, snapshot);
  EXPECT_EQ(models[1].bytes, 2);
}

}  // namespace
}  // namespace heddle::checkpoint

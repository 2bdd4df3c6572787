// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_folder.h"

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tied_head.h"

namespace heddle::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

std::string error_of(const fs::path& folder) { return check_model_folder(folder).message(); }

TEST(ModelFolder, SaysWhatAPathIsAndWhatHelps) {
  const testing::TemporaryFolder folder;
  const fs::path root = folder.path();
  EXPECT_THAT(error_of("Qwen/Qwen3-0.6B"),
              HasSubstr("`hf download Qwen/Qwen3-0.6B` brings it there"));
  for (const std::string revision : {"main", "v1.0", "refs/pr/1"}) {
    EXPECT_THAT(error_of("Qwen/Qwen3-0.6B@" + revision),
                HasSubstr("`hf download Qwen/Qwen3-0.6B --revision " + revision + " --local-dir"));
  }
  EXPECT_THAT(error_of(root / "none"), HasSubstr("there is no folder"));
  EXPECT_THAT(error_of(root), AllOf(HasSubstr("is empty"), HasSubstr("hf download")));
  folder.write("model-q4.gguf", "GGUF");
  EXPECT_TRUE(check_model_folder(root / "model-q4.gguf").ok());
  EXPECT_TRUE(check_model_folder(root).ok());
  EXPECT_THAT(check_safetensors_folder(root, "x").message(),
              HasSubstr("is a GGUF model, which x does not read; name the folder"));
  folder.write("model-q8.gguf", "GGUF");
  EXPECT_THAT(error_of(root), HasSubstr("has 2 GGUF models"));
  fs::remove(root / "model-q4.gguf");
  fs::remove(root / "model-q8.gguf");
  folder.write("adapter_config.json", "{}");
  EXPECT_THAT(error_of(root), HasSubstr("an adapter without its model"));
  fs::remove(root / "adapter_config.json");
  folder.write("params.json", "{}");
  EXPECT_THAT(error_of(root), HasSubstr("only params.json: a layout of the model's maker"));
  fs::create_directories(root / "one");
  folder.write("one/config.json", "{}");
  EXPECT_THAT(error_of(root), HasSubstr("name " + (root / "one").string()));
  fs::create_directories(root / "models--a--b" / "snapshots" / "f00");
  folder.write("models--a--b/snapshots/f00/config.json", "{}");
  EXPECT_THAT(error_of(root), HasSubstr("the folder of 2 models; name one of them, as"));
  EXPECT_THAT(error_of(root / "models--a--b"), HasSubstr("snapshots/f00"));
  folder.write("one/model.safetensors", "");
  EXPECT_THAT(error_of(root / "one" / "model.safetensors"),
              HasSubstr("name the one that it is in, " + (root / "one").string()));
  EXPECT_TRUE(check_model_folder(root / "one").ok());
}

TEST(ModelFolder, NamesLinksToWhatIsGone) {
  const testing::TemporaryFolder folder;
  const fs::path root = folder.path();
  fs::create_symlink("../blobs/1a2b", root / "config.json");
  EXPECT_THAT(error_of(root), AllOf(HasSubstr("config.json is a link to "), HasSubstr("blobs/1a2b"),
                                    HasSubstr("download it again")));
  fs::create_symlink(root / "gone", root / "model");
  EXPECT_THAT(error_of(root / "model"),
              HasSubstr("model is a link to " + (root / "gone").string()));
}

TEST(ModelFolder, NamesWhatMayNotBeRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const testing::TemporaryFolder folder;
  for (const fs::perms perms : {fs::perms::none, fs::perms::owner_exec, fs::perms::owner_read}) {
    fs::permissions(folder.path(), perms);
    EXPECT_THAT(error_of(folder.path()), HasSubstr("Permission denied; let the user"));
  }
  fs::permissions(folder.path(), fs::perms::owner_all);
  fs::permissions(folder.write("config.json", "{}"), fs::perms::none);
  EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json: Permission denied"));
}

TEST(ModelFolder, SaysWhatTheShellDidNotExpand) {
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_THAT(error_of("~/models/tiny"), HasSubstr("write /home/someone/models/tiny"));
  EXPECT_THAT(error_of("~/tiny"), HasSubstr("write /home/someone/tiny"));
  EXPECT_THAT(error_of("~other/tiny"), HasSubstr("has not expanded its ~; write the whole path"));
}

// As in transformers, which ties them only where both are the same.
TEST(TiedHead, IsUsedWhereItIsStoredWithOtherValues) {
  const testing::TemporaryFolder folder;
  const Tensor table = testing::counting({4, 2}, DType::kF32);
  const Tensor other = testing::counting({4, 2}, DType::kF32, 1);
  const auto settled = [&](std::string_view table_name, std::string_view head_name,
                           const Tensor& head) {
    const std::vector<NamedTensor> tensors = {{std::string(table_name), table.view()},
                                              {std::string(head_name), head.view()}};
    EXPECT_TRUE(write_safetensors(folder.path() / "model.safetensors", tensors).ok());
    ModelConfig config;
    config.tie_word_embeddings = true;
    settle_tied_head(folder.path(), config);
    EXPECT_EQ(config.notes.empty(), config.tie_word_embeddings);
    return config.tie_word_embeddings;
  };
  EXPECT_TRUE(settled("model.embed_tokens.weight", "lm_head.weight", table));
  EXPECT_FALSE(settled("model.embed_tokens.weight", "lm_head.weight", other));
  EXPECT_FALSE(settled("model.language_model.embed_tokens.weight",
                       "model.language_model.lm_head.weight", other));
  EXPECT_TRUE(settled("model.embed_tokens.weight", "mtp.lm_head.weight", other));
  EXPECT_TRUE(settled("model.embed_tokens.weight", "other_lm_head.weight", other));
  fs::remove(folder.path() / "model.safetensors");
  ModelConfig config;
  config.tie_word_embeddings = true;
  settle_tied_head(folder.path(), config);
  EXPECT_TRUE(config.tie_word_embeddings);
}

}  // namespace
}  // namespace heddle::checkpoint

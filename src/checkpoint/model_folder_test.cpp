// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_folder.h"

#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(error_of("Qwen/Qwen3-0.6B"), HasSubstr("hf download Qwen/Qwen3-0.6B --local-dir"));
  EXPECT_THAT(error_of(root / "none"), HasSubstr("there is no folder"));
  EXPECT_THAT(error_of(root), AllOf(HasSubstr("is empty"), HasSubstr("hf download")));
  folder.write("model-q4.gguf", "GGUF");
  EXPECT_THAT(error_of(root / "model-q4.gguf"), HasSubstr("is a GGUF file, which is not served"));
  EXPECT_THAT(error_of(root), HasSubstr("only \"model-q4.gguf\": a GGUF file"));
  fs::remove(root / "model-q4.gguf");
  folder.write("adapter_config.json", "{}");
  EXPECT_THAT(error_of(root), HasSubstr("the adapters of a model without the model"));
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

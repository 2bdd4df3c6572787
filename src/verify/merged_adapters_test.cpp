// SPDX-License-Identifier: Apache-2.0
// Merges adapters, as PEFT saves them, into their base models. The logits must equal those that
// PEFT and transformers compute in float32 for base and adapter.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "checkpoint/adapter_files.h"
#include "checkpoint/merge_checkpoint.h"
#include "models/registry.h"
#include "support/test_data.h"
#include "verify/plain_feeding.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The tolerance that golden_model_test.cpp uses for whole models.
constexpr double kMergedTolerance = 2e-4;

// A merged model in a folder that is removed with this object.
class MergedModel {
 public:
  MergedModel(const fs::path& base, const fs::path& adapter)
      : folder_(fs::temp_directory_path() / fmt::format("heddle_merged_{}", ::getpid())) {
    const auto config = models::load_config(base);
    if (!config.ok()) {
      status_ = config.status();
      return;
    }
    // fp32, because rounding the sum to bf16 would give a different model.
    status_ = checkpoint::merge_checkpoint({.base = base,
                                            .adapters = {{.folder = adapter}},
                                            .output = folder_,
                                            .dtype = DType::kF32},
                                           models::create_model(*config)->weight_specs())
                  .status();
  }

  ~MergedModel() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  MergedModel(const MergedModel&) = delete;
  MergedModel& operator=(const MergedModel&) = delete;

  [[nodiscard]] const Status& status() const { return status_; }

  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
  Status status_;
};

// Cuts a case to its first token.
void keep_first_token(verify::GoldenCase& golden) {
  Tensor row({1, golden.logits.shape()[1]}, DType::kF32);
  std::copy_n(golden.logits.span<float>().begin(), row.num_elements(), row.span<float>().begin());
  golden.logits = std::move(row);
  golden.ids.resize(1);
  golden.greedy.clear();
}

void expect_recorded_logits(const fs::path& model, const fs::path& cases,
                            bool first_token_only = false) {
  const auto file = checkpoint::SafetensorsFile::open(cases);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  auto goldens = verify::read_golden_cases(*file);
  ASSERT_TRUE(goldens.ok()) << goldens.status().to_string();
  if (first_token_only) std::ranges::for_each(*goldens, keep_first_token);
  constexpr int64_t kMostTokens = 640;
  auto pass = runner::ForwardPass::create({.model_dir = model,
                                           .dtype = DType::kF32,
                                           .num_threads = 2,
                                           .max_step_tokens = kMostTokens,
                                           .max_logit_rows = kMostTokens,
                                           .collect_hidden_states = true});
  ASSERT_TRUE(pass.ok()) << pass.status().to_string();
  for (const verify::GoldenCase& golden : *goldens) {
    SCOPED_TRACE(golden.name);
    std::vector<float> first_logits;
    const auto result =
        verify::check_case(**pass, golden, verify::all_feedings().front(), first_logits);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_GT(result->num_recorded, 0);
    EXPECT_LT(result->logits_error, kMergedTolerance);
    EXPECT_EQ(result->greedy_wrong, 0);
  }
}

// The recorded adapters of one kind, with their base models.
std::vector<nlohmann::json> recorded(const fs::path& folder, std::string_view kind) {
  const auto index = nlohmann::json::parse(std::ifstream(folder / "index.json"));
  std::vector<nlohmann::json> found;
  for (const nlohmann::json& adapter : index["adapters"]) {
    if (adapter["kind"] == kind) found.push_back(adapter);
  }
  return found;
}

TEST(MergedAdapters, EqualBaseAndAdapterInPeft) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden-lora");
  std::vector<std::pair<std::string, fs::path>> adapters;
  for (const nlohmann::json& adapter : recorded(folder, "adapter")) {
    adapters.emplace_back(adapter["name"], adapter["base"].get<std::string>());
  }
  for (const nlohmann::json& mix : recorded(folder, "mixed")) {
    for (const char* const part : {"/a", "/b"}) {
      adapters.emplace_back(mix["name"].get<std::string>() + part, mix["base"].get<std::string>());
    }
  }
  ASSERT_GE(adapters.size(), 28u);
  for (const auto& [name, base] : adapters) {
    SCOPED_TRACE(name);
    const MergedModel merged(folder.parent_path() / base, folder / name);
    if (name == "qwen3_w4a16_ct_r8") {
      EXPECT_THAT(merged.status().message(), HasSubstr("the model is quantised"));
      continue;
    }
    ASSERT_TRUE(merged.status().ok()) << merged.status().to_string();
    expect_recorded_logits(merged.folder(), folder / name / "cases.safetensors");
  }
}

// Adapters beyond plain LoRA are merged, or refused by name.
TEST(MergedAdapters, OtherKindsAreRefusedByNameOrMerged) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden-lora");
  const std::vector<nlohmann::json> adapters = recorded(folder, "refuse");
  ASSERT_EQ(adapters.size(), 10u);
  int num_merged = 0;
  for (const nlohmann::json& adapter : adapters) {
    const std::string name = adapter["name"];
    SCOPED_TRACE(name);
    const auto files = checkpoint::AdapterFiles::open(folder / name);
    if (!files.ok()) {
      EXPECT_EQ(files.status().code(), StatusCode::kUnimplemented);
      EXPECT_THAT(files.status().message(), HasSubstr(adapter["refuse"].get<std::string>()));
      continue;
    }
    const MergedModel merged(folder.parent_path() / adapter["base"].get<std::string>(),
                             folder / name);
    if (name == "neg_lora_bias") {
      EXPECT_THAT(merged.status().message(), HasSubstr("has a bias in the adapter, but none"));
      continue;
    }
    ASSERT_TRUE(merged.status().ok()) << merged.status().to_string();
    // This case was recorded with biases of queries or keys that differ from those in the file. The
    // first token attends only to itself, so its logits do not depend on them.
    expect_recorded_logits(merged.folder(), folder / name / "cases.safetensors",
                           /*first_token_only=*/name == "neg_bias_lora_only");
    ++num_merged;
  }
  EXPECT_EQ(num_merged, 6);
}

TEST(MergedAdapters, TrainedOnesOfHeddleTinyEqualTheReference) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "models/adapters-tiny");
  for (const char* const name : {"brackets", "words", "story-fox"}) {
    SCOPED_TRACE(name);
    const MergedModel merged(testing::repository_path("models/heddle-tiny"), folder / name);
    ASSERT_TRUE(merged.status().ok()) << merged.status().to_string();
    expect_recorded_logits(merged.folder(), folder / name / "logits.safetensors");
  }
}

}  // namespace
}  // namespace heddle

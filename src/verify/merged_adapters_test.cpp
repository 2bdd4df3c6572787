// SPDX-License-Identifier: Apache-2.0
// Merges adapters, as PEFT saves them, into their base models, or adds them while the models run.
// The logits must equal those that PEFT and transformers compute in float32 for base and adapter.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "checkpoint/adapter_files.h"
#include "checkpoint/adapter_fixture.h"
#include "checkpoint/merge_checkpoint.h"
#include "models/registry.h"
#include "support/test_data.h"
#include "verify/plain_feeding.h"
#include "verify/session.h"

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

Result<std::unique_ptr<runner::ForwardPass>> pass_of(const fs::path& model,
                                                     int64_t num_adapters = 0, bool exact = false) {
  constexpr int64_t kMostTokens = 640, kMostRank = 64;
  return runner::ForwardPass::create({.model_dir = model,
                                      .dtype = DType::kF32,
                                      .exact = exact,
                                      .num_threads = 2,
                                      .max_step_tokens = kMostTokens,
                                      .max_logit_rows = kMostTokens,
                                      .collect_hidden_states = true,
                                      .head_alone = true,
                                      .num_adapter_slots = num_adapters,
                                      .max_adapter_rank = kMostRank});
}

// Calls `check` with the result of each recorded case. `adapter`: a folder whose products are added
// to the rows; empty: none. Error: the model or the adapter cannot be loaded.
template <typename Check>
Status compare_with_recorded(const fs::path& model, const fs::path& cases, const fs::path& adapter,
                             const Check& check, bool first_token_only = false) {
  HEDDLE_ASSIGN_OR_RETURN(const auto pass, pass_of(model, adapter.empty() ? 0 : 1));
  std::shared_ptr<const Adapter> loaded;
  if (!adapter.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(Adapter own, pass->load_adapter(0, adapter));
    loaded = std::make_shared<const Adapter>(std::move(own));
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto file, checkpoint::SafetensorsFile::open(cases));
  HEDDLE_ASSIGN_OR_RETURN(auto goldens, verify::read_golden_cases(file));
  if (first_token_only) std::ranges::for_each(goldens, keep_first_token);
  for (verify::GoldenCase& golden : goldens) golden.adapter = loaded;
  for (const verify::GoldenCase& golden : goldens) {
    SCOPED_TRACE(golden.name);
    std::vector<float> first_logits;
    HEDDLE_ASSIGN_OR_RETURN(
        const auto result,
        verify::check_case(*pass, golden, verify::all_feedings().front(), first_logits));
    check(result);
  }
  return ok_status();
}

Status expect_recorded_logits(const fs::path& model, const fs::path& cases,
                              bool first_token_only = false, const fs::path& adapter = {}) {
  return compare_with_recorded(
      model, cases, adapter,
      [](const verify::CaseResult& result) {
        EXPECT_GT(result.num_recorded, 0);
        EXPECT_LT(result.logits_error, kMergedTolerance);
        EXPECT_EQ(result.greedy_wrong, 0);
      },
      first_token_only);
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

// All adapters that PEFT made, those of mixed batches too: (name, base).
std::vector<std::pair<std::string, fs::path>> all_recorded(const fs::path& folder) {
  std::vector<std::pair<std::string, fs::path>> adapters;
  for (const nlohmann::json& adapter : recorded(folder, "adapter")) {
    adapters.emplace_back(adapter["name"], adapter["base"].get<std::string>());
  }
  for (const nlohmann::json& mix : recorded(folder, "mixed")) {
    for (const char* const part : {"/a", "/b"}) {
      adapters.emplace_back(mix["name"].get<std::string>() + part, mix["base"].get<std::string>());
    }
  }
  EXPECT_GE(adapters.size(), 28u);
  return adapters;
}

TEST(MergedAdapters, EqualBaseAndAdapterInPeft) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden-lora");
  for (const auto& [name, base] : all_recorded(folder)) {
    SCOPED_TRACE(name);
    const MergedModel merged(folder.parent_path() / base, folder / name);
    if (name == "qwen3_w4a16_ct_r8") {
      EXPECT_THAT(merged.status().message(), HasSubstr("the model is quantised"));
      continue;
    }
    ASSERT_TRUE(merged.status().ok()) << merged.status().to_string();
    const Status status =
        expect_recorded_logits(merged.folder(), folder / name / "cases.safetensors");
    EXPECT_TRUE(status.ok()) << status.to_string();
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
    const Status status =
        expect_recorded_logits(merged.folder(), folder / name / "cases.safetensors",
                               /*first_token_only=*/name == "neg_bias_lora_only");
    EXPECT_TRUE(status.ok()) << status.to_string();
    ++num_merged;
  }
  EXPECT_EQ(num_merged, 6);
}

TEST(MergedAdapters, TrainedOnesOfHeddleTinyEqualTheReference) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "models/adapters-tiny");
  for (const char* const name : {"brackets", "words", "story-fox"}) {
    SCOPED_TRACE(name);
    const fs::path base = testing::repository_path("models/heddle-tiny");
    const fs::path logits = folder / name / "logits.safetensors";
    const MergedModel merged(base, folder / name);
    ASSERT_TRUE(merged.status().ok()) << merged.status().to_string();
    for (const Status& status : {expect_recorded_logits(merged.folder(), logits),
                                 expect_recorded_logits(base, logits, false, folder / name)}) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  }
}

// Adds adapters while the model runs. Those that it does not add are named, with heddle merge.
TEST(AddedAdapters, EqualBaseAndAdapterInPeft) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden-lora");
  std::vector<std::string> refused;
  for (const auto& [name, base] : all_recorded(folder)) {
    SCOPED_TRACE(name);
    const Status status = expect_recorded_logits(
        folder.parent_path() / base, folder / name / "cases.safetensors", false, folder / name);
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr("heddle merge MODEL ADAPTER OUT_DIR"));
    refused.push_back(name);
  }
  EXPECT_THAT(refused,
              ::testing::UnorderedElementsAre(
                  "deepseek_v2_mla_r8", "deepseek_v2_list_hook_r8", "deepseek_v3_qab_r8",
                  "qwen3_moe_experts_r8", "gpt_oss_experts_r4", "qwen3_moe_v4_experts_r4",
                  "qwen3_next_experts_r8", "qwen3_next_list_hook_r8", "qwen3_next_v4_all_r4"))
      << "experts, or the absorbed kv_b_proj";
}

// A batch of a recording: each row has a prompt and one of two adapters, or none.
struct MixedBatch {
  std::vector<std::vector<TokenId>> prompts;
  std::vector<int32_t> slots;  // of the adapters "a" and "b", -1 for none
  Tensor logits;               // [rows, tokens, V], recorded
};

MixedBatch read_mixed(const fs::path& folder, const nlohmann::json& rows) {
  MixedBatch batch;
  const auto file = checkpoint::SafetensorsFile::open(folder / "mixed.safetensors");
  const TensorView ids = file->view("input_ids").value(), logits = file->view("logits").value();
  for (int64_t row = 0; row < ids.shape[0]; ++row) {
    const auto* const own = ids.as<int32_t>() + row * ids.shape[1];
    batch.prompts.emplace_back(own, own + ids.shape[1]);
    const std::string name = rows[static_cast<size_t>(row)];
    batch.slots.push_back(name == "a" ? 0 : name == "b" ? 1 : -1);
  }
  batch.logits = Tensor(logits.shape, DType::kF32);
  std::copy_n(logits.as<float>(), logits.num_elements(), batch.logits.span<float>().begin());
  return batch;
}

// The logits of these rows of the batch, computed in one step and then for one more token each, all
// of them one after the other: [rows, tokens + 1, V].
Result<std::vector<float>> logits_of(runner::ForwardPass& pass, const MixedBatch& batch,
                                     const std::vector<size_t>& rows) {
  HEDDLE_ASSIGN_OR_RETURN(
      verify::Session session,
      verify::Session::create(pass, {.num_sequences = std::ssize(rows), .max_tokens = 64}));
  std::vector<verify::Session::Feed> prompts, next;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto sequence = static_cast<int64_t>(i);
    const std::vector<TokenId>& prompt = batch.prompts[rows[i]];
    session.set_adapter(sequence, batch.slots[rows[i]]);
    prompts.push_back({sequence, prompt});
    next.push_back({sequence, std::span(prompt).first(1)});
  }
  HEDDLE_RETURN_IF_ERROR(session.step(prompts, runner::LogitRows::kAll));
  const auto copy = [&] {
    const MutableTensorView logits = session.logits();
    const auto* const first = logits.as<float>();
    return std::vector<float>(first, first + logits.num_elements());
  };
  const std::vector<float> of_prompts = copy();
  HEDDLE_RETURN_IF_ERROR(session.step(next, runner::LogitRows::kAll));
  const std::vector<float> of_next = copy();
  const auto size = static_cast<int64_t>(of_prompts.size() / rows.size());
  const auto width = static_cast<int64_t>(of_next.size() / rows.size());
  std::vector<float> all;
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    all.insert(all.end(), of_prompts.begin() + i * size, of_prompts.begin() + (i + 1) * size);
    all.insert(all.end(), of_next.begin() + i * width, of_next.begin() + (i + 1) * width);
  }
  return all;
}

Result<std::unique_ptr<runner::ForwardPass>> pass_with(const fs::path& model,
                                                       const std::vector<fs::path>& adapters,
                                                       bool exact) {
  HEDDLE_ASSIGN_OR_RETURN(auto pass, pass_of(model, std::ssize(adapters), exact));
  for (size_t i = 0; i < adapters.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(pass->load_adapter(static_cast<int32_t>(i), adapters[i]).status());
  }
  return pass;
}

// The largest distance of a row of logits from the recorded one, relative to the latter's length.
double worst_row(const std::vector<float>& logits, const MixedBatch& batch) {
  const int64_t rows = batch.logits.shape()[0], T = batch.logits.shape()[1];
  const int64_t V = batch.logits.shape()[2];
  double worst = 0;
  for (int64_t row = 0; row < rows * T; ++row) {
    const float* const own = logits.data() + (row + row / T) * V;  // one more token per sequence
    const float* const recorded = batch.logits.span<float>().data() + row * V;
    double error = 0, length = 0;
    for (int64_t v = 0; v < V; ++v) {
      error += (double{own[v]} - recorded[v]) * (double{own[v]} - recorded[v]);
      length += double{recorded[v]} * recorded[v];
    }
    worst = std::max(worst, std::sqrt(error / length));
  }
  return worst;
}

TEST(AddedAdapters, MixedBatchesEqualPeftAndEachRowAlone) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden-lora");
  for (const nlohmann::json& mix : recorded(folder, "mixed")) {
    const fs::path own = folder / mix["name"].get<std::string>();
    SCOPED_TRACE(own.string());
    const fs::path base = folder.parent_path() / mix["base"].get<std::string>();
    const MixedBatch batch = read_mixed(own, mix["rows"]);
    const std::vector<size_t> all = {0, 1, 2, 3, 4};
    for (const bool exact : {false, true}) {
      const auto pass = pass_with(base, {own / "a", own / "b"}, exact);
      ASSERT_TRUE(pass.ok()) << pass.status().to_string();
      const auto together = logits_of(**pass, batch, all);
      ASSERT_TRUE(together.ok()) << together.status().to_string();
      EXPECT_LT(worst_row(*together, batch), kMergedTolerance);
      if (!exact) continue;
      // Each row alone has the same bits, and so has the one without an adapter in a program
      // without adapters.
      const auto plain = pass_with(base, {}, exact);
      ASSERT_TRUE(plain.ok()) << plain.status().to_string();
      for (const size_t row : all) {
        const bool has_adapter = batch.slots[row] >= 0;
        const auto alone = logits_of(has_adapter ? **pass : **plain, batch, {row});
        ASSERT_TRUE(alone.ok()) << alone.status().to_string();
        const auto begin = together->begin() + std::ssize(*alone) * static_cast<int64_t>(row);
        EXPECT_TRUE(std::equal(alone->begin(), alone->end(), begin)) << row;
      }
    }
  }
}

// The recordings notice an adapter whose products are missing for a part of a fused projection.
TEST(AddedAdapters, DroppedRowsAreNoticed) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden-lora");
  const fs::path own = folder / "qwen3_next_ba_r1",
                 base = folder.parent_path() / "golden/qwen3_next";
  const auto files = checkpoint::AdapterFiles::open(own);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  checkpoint::testing::NamedTensors rest;
  for (const checkpoint::AdapterUpdate& update : files->updates()) {
    if (update.module.ends_with("in_proj_ba")) continue;
    for (const auto& [ending, factor] :
         {std::pair(".lora_A.weight", update.a), std::pair(".lora_B.weight", update.b)}) {
      Tensor copy(factor.shape, DType::kF32);
      std::copy_n(factor.as<float>(), factor.num_elements(), copy.span<float>().begin());
      rest.emplace(update.module + ending, std::move(copy));
    }
  }
  ASSERT_LT(rest.size(), 2 * files->updates().size());
  std::ifstream config(own / "adapter_config.json");
  const fs::path dropped = checkpoint::testing::write_adapter(
      fs::temp_directory_path() / fmt::format("heddle_dropped_{}", ::getpid()),
      std::string(std::istreambuf_iterator<char>(config), {}), rest);
  double worst = 0;
  const Status status = compare_with_recorded(
      base, own / "cases.safetensors", dropped,
      [&](const auto& result) { worst = std::max(worst, result.logits_error); });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_GT(worst, 10 * kMergedTolerance);
  fs::remove_all(dropped);
}

TEST(AddedAdapters, OtherKindsAreRefusedByName) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden-lora");
  for (const nlohmann::json& adapter : recorded(folder, "refuse")) {
    const std::string name = adapter["name"];
    const Status status =
        expect_recorded_logits(folder.parent_path() / adapter["base"].get<std::string>(),
                               folder / name / "cases.safetensors", false, folder / name);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << name;
    EXPECT_THAT(status.message(), HasSubstr(adapter["refuse"].get<std::string>()));
  }
}

}  // namespace
}  // namespace heddle

// SPDX-License-Identifier: Apache-2.0
// Whole models against what Hugging Face transformers computes for them, in float32.
//
// The tolerance is 2e-4 of a row's norm: two correct fp32 evaluations of a recurrent model differ
// by up to 1e-4, because normalising small vectors amplifies rounding.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "integration/every_feeding.h"
#include "support/test_data.h"

namespace heddle {
namespace {

constexpr double kModelTolerance = 2e-4;
// For zamba2: its shared blocks normalise without a residual around them, which amplifies rounding.
constexpr double kUnsteadyTolerance = 5e-4;
constexpr int64_t kStepTokens = 640;

void expect_right(const verify::CaseResult& result, bool exact, double tolerance) {
  EXPECT_LT(result.logits_error, tolerance);
  EXPECT_LT(result.hidden_error, tolerance);
  EXPECT_LT(result.plain_error, tolerance);
  EXPECT_EQ(result.greedy_wrong, 0);
  if (exact) {
    EXPECT_TRUE(result.same_bits);
  }
}

void expect_goldens(const std::filesystem::path& model,
                    const std::vector<verify::GoldenCase>& goldens, bool exact,
                    double tolerance = kModelTolerance) {
  auto pass = runner::ForwardPass::create({.model_dir = model,
                                           .dtype = DType::kF32,
                                           .exact = exact,
                                           .num_threads = 2,
                                           .max_step_tokens = kStepTokens,
                                           .max_logit_rows = kStepTokens,
                                           .collect_hidden_states = true,
                                           .head_alone = true});
  ASSERT_TRUE(pass.ok()) << pass.status().to_string();
  EXPECT_TRUE((*pass)->executor().poison((*pass)->stream(), std::byte{0xff}).ok());
  for (const verify::GoldenCase& golden : goldens) {
    SCOPED_TRACE(fmt::format("{}, {}", golden.name, exact ? "exact" : "fast"));
    std::vector<float> first_logits;
    testing::check_every_feeding(
        **pass, golden, first_logits,
        [&](const verify::CaseResult& result) { expect_right(result, exact, tolerance); });
  }
}

void expect_golden(const std::filesystem::path& model, const std::filesystem::path& cases,
                   bool exact, double tolerance = kModelTolerance) {
  const auto file = checkpoint::SafetensorsFile::open(cases);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const auto goldens = verify::read_golden_cases(*file);
  ASSERT_TRUE(goldens.ok()) << goldens.status().to_string();
  expect_goldens(model, *goldens, exact, tolerance);
}

class GoldenModel : public ::testing::TestWithParam<bool> {};

TEST_P(GoldenModel, Qwen3NextEqualsHuggingFaceInAnyChunksAndBatches) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden/qwen3_next");
  expect_golden(folder, folder / "cases.safetensors", GetParam());
}

TEST_P(GoldenModel, Qwen3NextWithDenseLayersAndTiedHeadEqualsHuggingFace) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden/qwen3_next_mixed_mlp");
  expect_golden(folder, folder / "cases.safetensors", GetParam());
}

TEST_P(GoldenModel, HeddleTinyEqualsHuggingFace) {
  expect_golden(testing::repository_path("models/heddle-tiny"),
                testing::repository_path("tests/golden/heddle_tiny/logits.safetensors"),
                GetParam());
}

// Two of the recorded chats travel with the repository; all four take half a minute.
TEST_P(GoldenModel, HeddleTinyEqualsHuggingFaceInAllRecordedChats) {
  if (!testing::wants_everything()) GTEST_SKIP() << "two chats are asked; all of them with --full";
  HEDDLE_SHARED_PATH_OR_SKIP(chats, "golden-tiny/logits.safetensors");
  expect_golden(testing::repository_path("models/heddle-tiny"), chats, GetParam());
}

// The recorded prompts have an image, which no token before it sees.
TEST_P(GoldenModel, ThoseThatSeeEqualHuggingFaceInTheTextBeforeAnImage) {
  for (const char* model : {"qwen3_vl", "qwen2_5_vl"}) {
    SCOPED_TRACE(model);
    HEDDLE_SHARED_PATH_OR_SKIP(folder, std::filesystem::path("golden") / model);
    constexpr int32_t kImageToken = 300;
    const auto file = checkpoint::SafetensorsFile::open(folder / "cases.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    const TensorView ids = file->view("input_ids").value(), logits = file->view("logits").value();
    verify::GoldenCase golden{.name = "text"};
    for (const auto* id = ids.as<int32_t>(); *id != kImageToken; ++id) golden.ids.push_back(*id);
    ASSERT_EQ(golden.num_tokens(), 3);
    golden.logits = Tensor({golden.num_tokens(), logits.shape[1]}, DType::kF32);
    std::copy_n(logits.as<float>(), golden.logits.num_elements(),
                golden.logits.span<float>().begin());
    std::vector<verify::GoldenCase> goldens;
    goldens.push_back(std::move(golden));
    expect_goldens(folder, goldens, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(FastAndExact, GoldenModel, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "Exact" : "Fast"; });

// The families whose goldens are too large to travel with the repository.
class SharedGoldenModel : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(SharedGoldenModel, EqualsHuggingFaceInAnyChunksAndBatches) {
  const auto& [name, exact] = GetParam();
  HEDDLE_SHARED_PATH_OR_SKIP(folder, std::filesystem::path("golden") / name);
  const bool is_unsteady = std::string_view(name) == "zamba2";
  expect_golden(folder, folder / "cases.safetensors", exact,
                is_unsteady ? kUnsteadyTolerance : kModelTolerance);
}

INSTANTIATE_TEST_SUITE_P(
    FastAndExact, SharedGoldenModel,
    ::testing::Combine(::testing::Values("llama2", "llama3", "mistral_sliding", "qwen2", "qwen3",
                                         "qwen3_moe", "gpt_oss", "qwen3_5", "qwen3_5_moe",
                                         "deepseek_v2", "deepseek_v3", "kimi_linear"),
                       ::testing::Bool()),
    [](const auto& golden) {
      return fmt::format("{}_{}", std::get<0>(golden.param),
                         std::get<1>(golden.param) ? "exact" : "fast");
    });

// Families that are combinations of the same blocks.
INSTANTIATE_TEST_SUITE_P(
    PlainFamilies, SharedGoldenModel,
    ::testing::Combine(::testing::Values("mixtral", "seed_oss", "granite", "granitemoe", "smollm3",
                                         "olmo3", "exaone4", "ministral3", "phi3_sliding",
                                         "minimax_m2", "phi3", "phimoe", "ernie4_5_moe", "glm4_moe",
                                         "gemma3", "kimi_k25", "gemma4_dense", "gemma4_moe",
                                         "cohere2", "nanochat", "mimo_v2_flash", "mistral4",
                                         "step3p7"),
                       ::testing::Bool()),
    [](const auto& golden) {
      return fmt::format("{}_{}", std::get<0>(golden.param),
                         std::get<1>(golden.param) ? "exact" : "fast");
    });

// With layers that keep other states than the delta rule's.
INSTANTIATE_TEST_SUITE_P(
    Hybrids, SharedGoldenModel,
    ::testing::Combine(::testing::Values("lfm2", "lfm2_moe", "olmo_hybrid", "olmo_hybrid_rope",
                                         "minimax", "jamba", "nemotron_h", "granitemoehybrid",
                                         "granitemoehybrid_dense", "bamba", "falcon_h1",
                                         "falcon_h1_nonorm", "zamba2"),
                       ::testing::Bool()),
    [](const auto& golden) {
      return fmt::format("{}_{}", std::get<0>(golden.param),
                         std::get<1>(golden.param) ? "exact" : "fast");
    });

INSTANTIATE_TEST_SUITE_P(
    Quantised, SharedGoldenModel,
    ::testing::Combine(::testing::Values("llama2_awq", "llama2_gptq", "qwen3_fp8_block",
                                         "qwen3_fp8_block_partial", "qwen3_fp8_channel_ct",
                                         "qwen3_fp8_tensor", "qwen3_gptq_actorder",
                                         "qwen3_int8_channel_ct", "qwen3_w4a16_ct",
                                         "gpt_oss_mxfp4"),
                       ::testing::Bool()),
    [](const auto& golden) {
      return fmt::format("{}_{}", std::get<0>(golden.param),
                         std::get<1>(golden.param) ? "exact" : "fast");
    });

}  // namespace
}  // namespace heddle

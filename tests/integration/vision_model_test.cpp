// SPDX-License-Identifier: Apache-2.0
// Compares logits of prompts with pictures, computed from recorded patches, with those of Hugging
// Face transformers; tests text in programs that accept pictures.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"
#include "models/small_config_fixture.h"
#include "runner/program/vision_encoder.h"
#include "support/tensors.h"
#include "support/test_data.h"
#include "verify/golden_pictures.h"
#include "verify/plain_feeding.h"
#include "verify/session.h"

namespace heddle {
namespace {

using runner::ForwardPass;
using runner::VisionEncoder;
using ::testing::HasSubstr;

constexpr double kModelTolerance = 2e-4;
constexpr int64_t kStepTokens = 320;

std::unique_ptr<ForwardPass> pass_of(const std::filesystem::path& folder, bool exact,
                                     int64_t feature_width, bool dummy = false) {
  auto pass = ForwardPass::create({.model_dir = folder,
                                   .dummy_weights = dummy,
                                   .dtype = DType::kF32,
                                   .exact = exact,
                                   .num_threads = 2,
                                   .max_step_tokens = kStepTokens,
                                   .max_logit_rows = kStepTokens,
                                   .collect_hidden_states = true,
                                   .feature_width = feature_width});
  EXPECT_TRUE(pass.ok()) << pass.status().to_string();
  if (!pass.ok()) return nullptr;
  EXPECT_TRUE((*pass)->executor().poison((*pass)->stream(), std::byte{0xff}).ok());
  return std::move(*pass);
}

// The cases of a folder with their pictures, and the width of the features.
std::vector<verify::GoldenCase> encoded_cases(const std::filesystem::path& folder,
                                              const char* file_name, bool exact, int64_t& width) {
  auto encoder = VisionEncoder::create({.model_dir = folder, .dtype = DType::kF32},
                                       runner::ComputeDevice::open_cpu(2, exact).value());
  EXPECT_TRUE(encoder.ok()) << encoder.status().to_string();
  const auto file = checkpoint::SafetensorsFile::open(folder / file_name);
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  auto goldens = verify::read_golden_cases(*file);
  EXPECT_TRUE(goldens.ok()) << goldens.status().to_string();
  for (verify::GoldenCase& golden : *goldens) {
    const Status status = verify::encode_pictures(**encoder, golden);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(golden.pictures.has_value(), golden.recorded_pictures.has_value());
  }
  width = (*encoder)->config().feature_width();
  return std::move(*goldens);
}

class VisionModelGolden : public ::testing::TestWithParam<bool> {
 protected:
  // Feeds the cases in one step, in chunks that end within pictures, and together with text.
  static void expect_goldens(const std::filesystem::path& folder, const char* file_name,
                             size_t num_cases) {
    const bool exact = GetParam();
    int64_t width = 0;
    const auto goldens = encoded_cases(folder, file_name, exact, width);
    ASSERT_EQ(goldens.size(), num_cases);
    const auto pass = pass_of(folder, exact, width);
    ASSERT_NE(pass, nullptr);
    for (const verify::GoldenCase& golden : goldens) {
      std::vector<float> first_logits;
      for (const verify::Feeding& feeding : verify::all_feedings()) {
        SCOPED_TRACE(fmt::format("{}, {}", golden.name, feeding.name));
        const auto result = verify::check_case(*pass, golden, feeding, first_logits);
        ASSERT_TRUE(result.ok()) << result.status().to_string();
        EXPECT_EQ(result->num_rows, golden.num_compared_tokens());
        EXPECT_LT(result->logits_error, kModelTolerance);
        EXPECT_LT(result->plain_error, kModelTolerance);
        EXPECT_EQ(result->greedy_wrong, 0);
        if (exact) {
          EXPECT_TRUE(result->same_bits);
        }
      }
    }
  }
};

TEST_P(VisionModelGolden, PicturesInWindowsEqualHuggingFace) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden/qwen2_5_vl");
  expect_goldens(folder, "cases.safetensors", 1);
}

TEST_P(VisionModelGolden, PicturesOfSeveralLayersEqualHuggingFace) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden/qwen3_vl");
  expect_goldens(folder, "cases.safetensors", 1);
}

// Prompts with one, two and no pictures, and a picture in a conversation; with recurrent layers.
TEST_P(VisionModelGolden, HeddleSeeEqualsHuggingFace) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "models/heddle-see");
  expect_goldens(folder, "golden.safetensors", 4);
}

INSTANTIATE_TEST_SUITE_P(FastAndExact, VisionModelGolden, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Exact" : "Fast"; });

// The golden detects a model without the features for later layers (DeepStack).
TEST(VisionModel, GoldenDetectsMissingFeaturesOfLaterLayers) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden/qwen3_vl");
  int64_t width = 0;
  auto goldens = encoded_cases(folder, "cases.safetensors", /*exact=*/false, width);
  const auto pass = pass_of(folder, /*exact=*/false, width);
  ASSERT_NE(pass, nullptr);
  const Tensor& features = goldens[0].pictures->features;
  for (int64_t t = 0; t < features.shape()[0]; ++t) {
    auto* const row = goldens[0].pictures->features.view().row<float>(t);
    std::fill(row + pass->config().hidden_size, row + width, 0.0f);
  }
  std::vector<float> first_logits;
  const auto result = verify::check_case(*pass, goldens[0], {.name = "whole"}, first_logits);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_GT(result->logits_error, 0.1);
}

// A small model with random weights, positions on three axes and recurrent layers.
class SmallVisionModel : public ::testing::Test {
 protected:
  void SetUp() override {
    nlohmann::json text = models::testing::small_config(
        "Qwen3_5ForConditionalGeneration",
        {{"linear_num_key_heads", 2}, {"linear_num_value_heads", 4}, {"head_dim", 32}});
    text["rope_parameters"] = {{"mrope_section", {2, 1, 1}}, {"mrope_interleaved", true}};
    folder_.write("config.json", text.dump());
  }

  // The logits of a step that computes `ids` from the start of a sequence.
  static std::vector<float> logits_of(ForwardPass& pass, const std::vector<TokenId>& ids,
                                      const verify::GoldenPictures* pictures) {
    auto session = verify::Session::create(pass, {.num_sequences = 1, .max_tokens = 64});
    EXPECT_TRUE(session.ok());
    session->show_pictures(0, pictures);
    const verify::Session::Feed feed{0, ids};
    const Status status = session->step({&feed, 1}, runner::LogitRows::kAll);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const TensorView logits = session->logits();
    return {logits.as<float>(), logits.as<float>() + logits.num_elements()};
  }

  static std::vector<TokenId> some_ids() {
    std::vector<TokenId> ids;
    for (TokenId i = 0; i < 30; ++i) ids.push_back(i * 37 % 320);
    return ids;
  }

  checkpoint::testing::TemporaryFolder folder_;
};

TEST_F(SmallVisionModel, TextHasTheSameBitsInProgramsWithPictures) {
  const auto plain = pass_of(folder_.path(), /*exact=*/false, 0, /*dummy=*/true);
  const auto sees = pass_of(folder_.path(), /*exact=*/false, 64, /*dummy=*/true);
  ASSERT_TRUE(plain != nullptr && sees != nullptr);
  EXPECT_EQ(logits_of(*plain, some_ids(), nullptr), logits_of(*sees, some_ids(), nullptr));
}

// With the placeholders' own embeddings as features only the positions change. Other features
// change only tokens from the changed row on.
TEST_F(SmallVisionModel, FeaturesReplaceEmbeddings) {
  const auto pass = pass_of(folder_.path(), /*exact=*/true, 64, /*dummy=*/true);
  ASSERT_NE(pass, nullptr);
  const std::vector<TokenId> ids = some_ids();
  const auto picture_of = [&](int64_t rows, int64_t columns) {
    return request::PicturePositions::create({{.start = 7, .rows = rows, .columns = columns}})
        .value();
  };
  verify::GoldenPictures pictures{.positions = picture_of(1, 6),
                                  .features = Tensor({6, 64}, DType::kF32)};
  const TensorView table = *pass->find_constant("embed_tokens");
  for (int64_t i = 0; i < 6; ++i) {
    std::copy_n(table.row<float>(ids[static_cast<size_t>(7 + i)]), 64,
                pictures.features.view().row<float>(i));
  }
  // A picture of one token has the same positions as text.
  verify::GoldenPictures one{.positions = picture_of(1, 1),
                             .features = Tensor({1, 64}, DType::kF32)};
  std::copy_n(table.row<float>(ids[7]), 64, one.features.view().row<float>(0));
  const std::vector<float> text = logits_of(*pass, ids, nullptr);
  EXPECT_EQ(logits_of(*pass, ids, &one), text);

  const auto first_change = [&](const std::vector<float>& other, const std::vector<float>& from) {
    const auto at = std::mismatch(other.begin(), other.end(), from.begin()).first;
    return (at - other.begin()) / 320;
  };
  const std::vector<float> wide = logits_of(*pass, ids, &pictures);
  EXPECT_EQ(first_change(wide, text), 8) << "the second token of the row is at another column";
  pictures.positions = picture_of(2, 3);
  EXPECT_EQ(first_change(logits_of(*pass, ids, &pictures), wide), 10) << "it begins the second row";
  pictures.positions = picture_of(1, 6);
  pictures.features.view().row<float>(3)[5] += 1;
  EXPECT_EQ(first_change(logits_of(*pass, ids, &pictures), wide), 10);
}

TEST_F(SmallVisionModel, RefusesPicturesThatDoNotFit) {
  const auto complaint = [&](int64_t width) {
    return ForwardPass::create(
               {.model_dir = folder_.path(), .dummy_weights = true, .feature_width = width})
        .status()
        .message();
  };
  EXPECT_THAT(complaint(65), HasSubstr("features of 65 columns do not fit a model 64 wide"));
  folder_.write("config.json", models::testing::small_config("LlamaForCausalLM").dump());
  EXPECT_THAT(complaint(64), HasSubstr("mrope_section has 0 sections"));
}

}  // namespace
}  // namespace heddle

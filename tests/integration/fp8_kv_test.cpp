// SPDX-License-Identifier: Apache-2.0
// The error of an FP8 KV cache, and that it takes the checkpoint's scales. docs/numerics.md has
// what is recorded here as properties. That bits depend on nothing else is
// engine_exactness_test.cpp's and cache_exactness_test.cpp's business.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "integration/recorded_turns.h"
#include "support/dense_model.h"
#include "support/test_data.h"
#include "verify/session.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using runner::ForwardPass;
using verify::Session;
using Tokens = std::vector<TokenId>;

constexpr int64_t kPassTokens = 1024;

std::unique_ptr<ForwardPass> pass_of(const fs::path& model, std::optional<DType> dtype,
                                     std::optional<DType> kv_dtype) {
  auto pass = ForwardPass::create({.model_dir = model,
                                   .dtype = dtype,
                                   .kv_dtype = kv_dtype,
                                   .num_threads = 2,
                                   .max_step_tokens = kPassTokens,
                                   .max_logit_rows = kPassTokens});
  EXPECT_TRUE(pass.ok()) << pass.status().to_string();
  return std::move(pass).value();
}

std::vector<Tokens> recorded_texts(int64_t per_file) {
  std::vector<Tokens> texts;
  for (const auto& of_file : testing::recorded_turns(per_file)) {
    texts.insert(texts.end(), of_file.begin(), of_file.end());
  }
  return texts;
}

// Logits [T, V] after every token.
std::vector<float> logits_of(ForwardPass& pass, Session& session, const Tokens& tokens) {
  EXPECT_TRUE(session.reset(0).ok());
  const std::array<Session::Feed, 1> feed = {{{0, tokens}}};
  const Status status = session.step(feed, runner::LogitRows::kAll);
  EXPECT_TRUE(status.ok()) << status.to_string();
  const float* from = session.logits().as<float>();
  return {from, from + std::ssize(tokens) * pass.config().vocab_size};
}

std::vector<double> log_probabilities(const float* logits, int64_t count) {
  const double max = static_cast<double>(*std::max_element(logits, logits + count));
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(logits[i]) - max);
  std::vector<double> result;
  for (int64_t i = 0; i < count; ++i) {
    result.push_back(static_cast<double>(logits[i]) - max - std::log(sum));
  }
  return result;
}

struct Loss {
  int64_t rows = 0;
  int64_t same_top = 0;
  double kl = 0;
  double entropy = 0;

  void add(const std::vector<double>& p, const std::vector<double>& q) {
    ++rows;
    for (size_t i = 0; i < p.size(); ++i) {
      kl += std::exp(p[i]) * (p[i] - q[i]);
      entropy -= std::exp(p[i]) * p[i];
    }
    same_top += std::max_element(p.begin(), p.end()) - p.begin() ==
                        std::max_element(q.begin(), q.end()) - q.begin()
                    ? 1
                    : 0;
  }

  [[nodiscard]] double mean(double sum) const { return sum / static_cast<double>(rows); }
};

Loss loss_between(ForwardPass& plain, ForwardPass& rounded, const std::vector<Tokens>& texts) {
  Session plain_session = Session::create(plain, {.max_tokens = kPassTokens}).value();
  Session rounded_session = Session::create(rounded, {.max_tokens = kPassTokens}).value();
  const int64_t V = plain.config().vocab_size;
  Loss loss;
  for (const Tokens& text : texts) {
    const std::vector<float> p = logits_of(plain, plain_session, text);
    const std::vector<float> q = logits_of(rounded, rounded_session, text);
    for (int64_t row = 0; row < std::ssize(text); ++row) {
      loss.add(log_probabilities(p.data() + row * V, V), log_probabilities(q.data() + row * V, V));
    }
  }
  return loss;
}

TEST(Fp8Kv, LosesLittleAgainstBf16) {
  const fs::path model = testing::repository_path("models/heddle-tiny");
  const auto plain = pass_of(model, std::nullopt, DType::kBf16);
  const auto rounded = pass_of(model, std::nullopt, DType::kF8E4M3);
  const Loss loss = loss_between(*plain, *rounded, recorded_texts(12));
  const double mean_kl = loss.mean(loss.kl);
  const double same_top_percent = 100 * loss.mean(static_cast<double>(loss.same_top));
  RecordProperty("rows", std::to_string(loss.rows));
  RecordProperty("mean_kl", fmt::format("{:.4g}", mean_kl));
  RecordProperty("mean_entropy", fmt::format("{:.4g}", loss.mean(loss.entropy)));
  RecordProperty("same_top_percent", fmt::format("{:.4g}", same_top_percent));
  EXPECT_GE(loss.rows, 2000);
  EXPECT_GE(loss.mean(loss.entropy), 0.3) << "texts that are no test";
  EXPECT_GT(mean_kl, 1e-8) << "is the format in use?";
  EXPECT_LE(mean_kl, 5e-3);
  EXPECT_GE(same_top_percent, 98);
}

// Latents of a norm beside rotated channels. The weights are random, so that experts are chosen
// near ties: a choice that changes is most of the loss, and the bound is wider than for a trained
// model.
TEST(Fp8Kv, LosesABoundedPartOfLatents) {
  HEDDLE_SHARED_PATH_OR_SKIP(model, "golden/deepseek_v3");
  const auto plain = pass_of(model, DType::kF32, DType::kF32);
  const auto rounded = pass_of(model, DType::kF32, DType::kF8E4M3);
  std::vector<Tokens> texts(4);
  for (size_t i = 0; i < texts.size(); ++i) {
    for (int64_t t = 0; t < 200; ++t) {
      texts[i].push_back(
          static_cast<TokenId>((t * 7919 + t * t * 13 + static_cast<int64_t>(i) * 104729) % 311));
    }
  }
  const Loss loss = loss_between(*plain, *rounded, texts);
  const double mean_kl = loss.mean(loss.kl);
  RecordProperty("mean_kl", fmt::format("{:.4g}", mean_kl));
  RecordProperty("same_top_percent",
                 fmt::format("{:.4g}", 100 * loss.mean(static_cast<double>(loss.same_top))));
  EXPECT_GT(mean_kl, 1e-9) << "is the format in use?";
  EXPECT_LE(mean_kl, 0.1);
}

// A copy of a golden model that was calibrated: scales for all layers, and config.json says so.
class CalibratedModel {
 public:
  CalibratedModel(const std::string& name, float k_scale, float v_scale)
      : folder_(fs::path(::testing::TempDir()) / ("heddle_" + name)) {
    const fs::path golden = testing::dense_model();
    fs::create_directories(folder_);
    std::ifstream config_file(golden / "config.json");
    auto config = nlohmann::json::parse(config_file);
    config["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"format", "dense"},
        {"config_groups", nlohmann::json::object()},
        {"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}}}};
    std::ofstream(folder_ / "config.json") << config;
    const auto file = checkpoint::SafetensorsFile::open(golden / "model.safetensors").value();
    std::vector<checkpoint::NamedTensor> tensors;
    for (const checkpoint::TensorEntry& entry : file.tensors()) {
      tensors.push_back({entry.name, file.view(entry.name).value()});
    }
    k_scale_.span<float>()[0] = k_scale;
    v_scale_.span<float>()[0] = v_scale;
    for (int64_t layer = 0; layer < config["num_hidden_layers"].get<int64_t>(); ++layer) {
      names_.push_back(fmt::format("model.layers.{}.self_attn.k_proj.k_scale", layer));
      names_.push_back(fmt::format("model.layers.{}.self_attn.v_proj.v_scale", layer));
    }
    for (size_t i = 0; i < names_.size(); ++i) {
      tensors.push_back({names_[i], i % 2 == 0 ? k_scale_.view() : v_scale_.view()});
    }
    EXPECT_TRUE(checkpoint::write_safetensors(folder_ / "model.safetensors", tensors).ok());
  }

  ~CalibratedModel() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
  Tensor k_scale_{{1}, DType::kF32}, v_scale_{{1}, DType::kF32};
  std::vector<std::string> names_;
};

std::vector<Tokens> any_texts() {
  std::vector<Tokens> texts(3);
  for (size_t t = 0; t < texts.size(); ++t) {
    for (int i = 0; i < 90; ++i) {
      texts[t].push_back(static_cast<TokenId>((i * 7919 + 31 * static_cast<int>(t)) % 311));
    }
  }
  return texts;
}

TEST(Fp8Kv, TakesTheScalesOfACalibratedCheckpoint) {
  const CalibratedModel model("calibrated", 0.03125f, 0.01f);
  const auto plain = pass_of(model.folder(), std::nullopt, DType::kBf16);
  const auto rounded = pass_of(model.folder(), DType::kBf16, std::nullopt);
  EXPECT_EQ(rounded->kv_dtype(), DType::kF8E4M3);
  ASSERT_EQ(std::ssize(rounded->kv_scales()), rounded->cache_needs().num_kv_layers());
  for (const checkpoint::KvScales& scales : rounded->kv_scales()) {
    EXPECT_EQ(scales.k, 0.03125f);
    EXPECT_EQ(scales.v, 0.01f);
  }
  const Loss loss = loss_between(*plain, *rounded, any_texts());
  EXPECT_GT(loss.mean(loss.kl), 1e-12);
  // Keys and values have three mantissa bits; 0.0053 was measured.
  EXPECT_LE(loss.mean(loss.kl), 1e-2);
  // Nothing that --dtype float32 runs is rounded unasked.
  EXPECT_EQ(pass_of(model.folder(), DType::kF32, std::nullopt)->kv_dtype(), DType::kF32);
}

// The bound above is small against these errors: scales so wrong that all is clipped, or rounded to
// zero.
TEST(Fp8Kv, SuffersFromScalesThatDoNotFit) {
  for (const float scale : {1e-6f, 1e6f}) {
    const CalibratedModel model(fmt::format("calibrated_{:g}", scale), scale, scale);
    const auto plain = pass_of(model.folder(), std::nullopt, DType::kBf16);
    const auto rounded = pass_of(model.folder(), DType::kBf16, std::nullopt);
    const Loss loss = loss_between(*plain, *rounded, any_texts());
    RecordProperty(fmt::format("mean_kl_{:g}", scale), fmt::format("{:.4g}", loss.mean(loss.kl)));
    EXPECT_GT(loss.mean(loss.kl), 1e-2) << scale;
  }
}

}  // namespace
}  // namespace heddle

// SPDX-License-Identifier: Apache-2.0
// Models with latent attention whose kv_b_proj is quantised, against twins that hold the same
// numbers plainly. Exact mode promises the same bits, however the tokens are fed and whatever comes
// from the prefix cache.
#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/dummy_weights.h"
#include "checkpoint/safetensors.h"
#include "integration/every_feeding.h"
#include "models/registry.h"
#include "quant/small_floats.h"

namespace heddle {
namespace {

using checkpoint::NamedTensor;
using nlohmann::json;

constexpr int64_t kPromptTokens = 130;
constexpr int64_t kBlock = 128;

enum class Stored { kPlain, kRounded, kInt8Rows, kFp8Blocks };

// 4 heads of 16 + 24: kv_b_proj is [160, 32], one whole block of FP8 and a part of one.
json config_of(std::string_view architecture) {
  json config = {
      {"architectures", {architecture}}, {"vocab_size", 320},      {"hidden_size", 64},
      {"intermediate_size", 96},         {"num_hidden_layers", 3}, {"num_attention_heads", 4},
      {"num_key_value_heads", 4},        {"kv_lora_rank", 32},     {"q_lora_rank", nullptr},
      {"qk_nope_head_dim", 16},          {"qk_rope_head_dim", 8},  {"v_head_dim", 24}};
  if (architecture.starts_with("DeepseekV3")) config["q_lora_rank"] = 24;
  if (architecture.starts_with("Kimi")) {
    config.update({{"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                   {"linear_conv_kernel_dim", 4},
                   {"linear_head_dim", 16},
                   {"linear_num_heads", 4},
                   {"model_max_length", 2048},
                   {"mlp_layer_types", {"dense", "dense", "dense"}}});
  }
  return config;
}

// One checkpoint: seeded numbers, the same for every way of storing kv_b_proj.
class Checkpoint {
 public:
  Checkpoint(std::string_view architecture, Stored stored, Stored twin_of = Stored::kPlain)
      : stored_(stored), rounding_(stored == Stored::kRounded ? twin_of : stored) {
    json config = config_of(architecture);
    const auto parsed = models::parse_config(config.dump());
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    if (!parsed.ok()) return;
    const checkpoint::DummyWeights weights(7, DType::kF32);
    for (const auto& spec : models::create_model(*parsed)->weight_specs()) {
      for (const auto& piece : spec.alternatives.front()) {
        const auto stored_weight = weights.find(
            {.name = piece.tensor.name, .shape = piece.tensor.shape, .initial = spec.initial});
        Tensor tensor(piece.tensor.shape, DType::kF32);
        weights.read(*stored_weight, 0, tensor.num_elements(), DType::kF32, tensor.view().data);
        if (tensor.shape().rank() > 1) {  // so that scores and values differ between tokens
          for (float& value : tensor.span<float>()) value *= 8;
        }
        if (piece.tensor.name.ends_with("kv_b_proj.weight")) {
          add_quantised(piece.tensor.name, std::move(tensor));
        } else {
          add(piece.tensor.name, std::move(tensor));
        }
      }
    }
    if (stored == Stored::kInt8Rows) {
      config["quantization_config"] = {{"quant_method", "w8a8_int8"}};
    } else if (stored == Stored::kFp8Blocks) {
      config["quantization_config"] = {{"quant_method", "fp8"},
                                       {"weight_block_size", {kBlock, kBlock}}};
    }
    folder_.write("config.json", config.dump());
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < names_.size(); ++i) named.push_back({names_[i], tensors_[i].view()});
    EXPECT_TRUE(write_safetensors(folder_.path() / "model.safetensors", named).ok());
  }

  [[nodiscard]] std::unique_ptr<runner::ForwardPass> run(bool exact) const {
    auto pass = runner::ForwardPass::create({.model_dir = folder_.path(),
                                             .exact = exact,
                                             .num_threads = 2,
                                             .max_step_tokens = kPromptTokens + 64,
                                             .max_logit_rows = kPromptTokens + 64,
                                             .collect_hidden_states = true,
                                             .head_alone = true});
    EXPECT_TRUE(pass.ok()) << pass.status().to_string();
    return pass.ok() ? std::move(*pass) : nullptr;
  }

 private:
  void add(std::string name, Tensor tensor) {
    names_.push_back(std::move(name));
    tensors_.push_back(std::move(tensor));
  }

  void add_quantised(const std::string& name, Tensor weight) {
    if (rounding_ == Stored::kPlain) return add(name, std::move(weight));
    const bool int8 = rounding_ == Stored::kInt8Rows;
    const int64_t N = weight.shape()[0];
    const int64_t K = weight.shape()[1];
    const int64_t rows_each = int8 ? 1 : kBlock;
    Tensor codes({N, K}, int8 ? DType::kI8 : DType::kF8E4M3);
    Tensor scales({(N + rows_each - 1) / rows_each, 1}, DType::kF32);
    for (int64_t first = 0; first < N; first += rows_each) {
      const auto rows = weight.span<float>().subspan(
          static_cast<size_t>(first * K), static_cast<size_t>(std::min(rows_each, N - first) * K));
      float largest = 0;
      for (const float value : rows) largest = std::max(largest, std::abs(value));
      const float scale = largest / (int8 ? 127.0f : 448.0f);
      scales.span<float>()[static_cast<size_t>(first / rows_each)] = scale;
      for (size_t i = 0; i < rows.size(); ++i) {
        const size_t at = static_cast<size_t>(first * K) + i;
        if (int8) {
          const auto code = static_cast<int8_t>(std::lround(rows[i] / scale));
          codes.span<int8_t>()[at] = code;
          rows[i] = static_cast<float>(code) * scale;
        } else {
          const uint8_t code = quant::float_to_e4m3(rows[i] / scale);
          codes.span<uint8_t>()[at] = code;
          rows[i] = quant::e4m3_to_float(code) * scale;
        }
      }
    }
    if (stored_ == Stored::kRounded) return add(name, std::move(weight));
    add(name, std::move(codes));
    add(name + (int8 ? "_scale" : "_scale_inv"), std::move(scales));
  }

  Stored stored_;
  Stored rounding_;
  checkpoint::testing::TemporaryFolder folder_;
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
};

verify::GoldenCase tokens_only() {
  verify::GoldenCase golden{.name = "tokens", .logits = Tensor({kPromptTokens, 320}, DType::kF32)};
  for (int64_t i = 0; i < kPromptTokens; ++i) {
    golden.ids.push_back(static_cast<TokenId>((i * 7919 + 5) % 320));
  }
  return golden;
}

class QuantisedLatents : public ::testing::TestWithParam<std::tuple<const char*, Stored, bool>> {};

TEST_P(QuantisedLatents, GiveTheLogitsOfTheNumbersTheyStandFor) {
  const auto& [architecture, stored, exact] = GetParam();
  const verify::GoldenCase golden = tokens_only();
  const Checkpoint twin(architecture, Stored::kRounded, stored);
  const Checkpoint quantised(architecture, stored);
  const Checkpoint original(architecture, Stored::kPlain);
  const auto twin_pass = twin.run(exact);
  const auto pass = quantised.run(exact);
  const auto original_pass = original.run(exact);
  ASSERT_TRUE(twin_pass != nullptr && pass != nullptr && original_pass != nullptr);

  std::vector<float> twins_logits;  // filled by the first feeding, compared with by the others
  const verify::Feeding whole = verify::all_feedings().front();
  ASSERT_TRUE(verify::check_case(*twin_pass, golden, whole, twins_logits).ok());
  const auto unrounded = verify::check_case(*original_pass, golden, whole, twins_logits);
  ASSERT_TRUE(unrounded.ok());
  EXPECT_GT(unrounded->plain_error, 1e-3) << "kv_b_proj makes too little difference to be seen";

  const auto expect_same = [&](const verify::CaseResult& result) {
    EXPECT_LT(result.plain_error, 2e-4);
    if (exact) {
      EXPECT_TRUE(result.same_bits);
    }
  };
  testing::check_every_feeding(*pass, golden, twins_logits, expect_same);
}

INSTANTIATE_TEST_SUITE_P(
    Families, QuantisedLatents,
    ::testing::Combine(::testing::Values("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM",
                                         "KimiLinearForCausalLM"),
                       ::testing::Values(Stored::kInt8Rows, Stored::kFp8Blocks), ::testing::Bool()),
    [](const auto& one) {
      return fmt::format("{}_{}_{}", std::get<0>(one.param),
                         std::get<1>(one.param) == Stored::kInt8Rows ? "int8" : "fp8",
                         std::get<2>(one.param) ? "exact" : "fast");
    });

}  // namespace
}  // namespace heddle

// SPDX-License-Identifier: Apache-2.0
// Qwen2-MoE against the same model as plain loops in double precision: no recorded golden exists of
// it. The weights are seeded, the loops know nothing of Heddle but the names of hub tensors.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/seeded_tensors_fixture.h"
#include "integration/every_feeding.h"
#include "models/registry.h"
#include "support/plain_loops.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::add;
using testing::Row;
using testing::Rows;

constexpr int64_t kVocabulary = 96, kHidden = 48, kLayers = 3;
constexpr int64_t kHeads = 4, kKvHeads = 2;
constexpr size_t kHeadDim = 12;
constexpr int64_t kExperts = 6, kPerToken = 2, kTokens = 70;
constexpr double kEpsilon = 1e-6, kTheta = 10000;

json config_of(bool normalises) {
  return {{"architectures", {"Qwen2MoeForCausalLM"}},
          {"vocab_size", kVocabulary},
          {"hidden_size", kHidden},
          {"intermediate_size", 64},
          {"num_hidden_layers", kLayers},
          {"num_attention_heads", kHeads},
          {"num_key_value_heads", kKvHeads},
          {"rms_norm_eps", kEpsilon},
          {"rope_theta", kTheta},
          {"max_position_embeddings", 1024},
          {"mlp_only_layers", {0}},
          {"num_experts", kExperts},
          {"num_experts_per_tok", kPerToken},
          {"moe_intermediate_size", 16},
          {"shared_expert_intermediate_size", 40},
          {"norm_topk_prob", normalises}};
}

class Reference {
 public:
  Reference(std::map<std::string, Tensor> weights, bool normalises)
      : loops_(std::move(weights), kEpsilon), normalises_(normalises) {}

  [[nodiscard]] Rows logits(const std::vector<TokenId>& ids) const {
    Rows h;
    for (const TokenId id : ids) h.push_back(loops_.row_of("model.embed_tokens.weight", id));
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string name = fmt::format("model.layers.{}.", layer);
      add(h, loops_.attention(name + "self_attn.", loops_.norms(h, name + "input_layernorm"),
                              {.queries = kHeads,
                               .keys = kKvHeads,
                               .width = kHeadDim,
                               .theta = kTheta,
                               .scale = 1 / std::sqrt(static_cast<double>(kHeadDim))}));
      Rows y;
      for (const Row& x : loops_.norms(h, name + "post_attention_layernorm")) {
        y.push_back(layer == 0 ? loops_.swiglu(name + "mlp.", x) : experts(name + "mlp.", x));
      }
      add(h, y);
    }
    return loops_.products("lm_head", loops_.norms(h, "model.norm"));
  }

 private:
  [[nodiscard]] Row experts(const std::string& name, const Row& x) const {
    const Row weights = testing::softmax(loops_.product(name + "gate", x));
    std::vector<size_t> order(weights.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, std::greater(), [&](size_t e) { return weights[e]; });
    order.resize(kPerToken);
    double sum = 0;
    for (const size_t e : order) sum += weights[e];
    const double gate = 1 / (1 + std::exp(-loops_.product(name + "shared_expert_gate", x)[0]));
    Row y = loops_.swiglu(name + "shared_expert.", x);
    for (double& value : y) value *= gate;
    for (const size_t e : order) {
      const Row of_expert = loops_.swiglu(fmt::format("{}experts.{}.", name, e), x);
      const double weight = weights[e] / (normalises_ ? sum : 1);
      for (size_t i = 0; i < y.size(); ++i) y[i] += weight * of_expert[i];
    }
    return y;
  }

  testing::PlainLoops loops_;
  bool normalises_;
};

class Qwen2MoeReference : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(Qwen2MoeReference, IsComputedInAnyChunksAndBatches) {
  const auto [normalises, exact] = GetParam();
  const json config = config_of(normalises);
  const auto parsed = models::parse_config(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  auto weights = checkpoint::testing::seeded_tensors(models::create_model(*parsed)->weight_specs());
  const checkpoint::testing::TemporaryFolder folder;
  folder.write("config.json", config.dump());
  std::vector<checkpoint::NamedTensor> named;
  for (const auto& [name, tensor] : weights) named.push_back({name, tensor.view()});
  ASSERT_TRUE(write_safetensors(folder.path() / "model.safetensors", named).ok());

  verify::GoldenCase golden{.name = "loops", .logits = Tensor({kTokens, kVocabulary}, DType::kF32)};
  for (int64_t i = 0; i < kTokens; ++i) {
    golden.ids.push_back(static_cast<TokenId>((i * 7919 + 5) % kVocabulary));
  }
  const Rows truth = Reference(std::move(weights), normalises).logits(golden.ids);
  for (size_t t = 0; t < truth.size(); ++t) {
    std::ranges::copy(truth[t], golden.logits.span<float>().begin() +
                                    static_cast<std::ptrdiff_t>(t * kVocabulary));
  }

  auto pass = runner::ForwardPass::create({.model_dir = folder.path(),
                                           .exact = exact,
                                           .num_threads = 2,
                                           .max_step_tokens = kTokens + 64,
                                           .max_logit_rows = kTokens + 64,
                                           .collect_hidden_states = true,
                                           .head_alone = true});
  ASSERT_TRUE(pass.ok()) << pass.status().to_string();
  std::vector<float> first_logits;
  const auto expect_right = [&](const verify::CaseResult& result) {
    EXPECT_LT(result.logits_error, 5e-6);
    if (exact) {
      EXPECT_TRUE(result.same_bits);
    }
  };
  testing::check_every_feeding(**pass, golden, first_logits, expect_right);
}

INSTANTIATE_TEST_SUITE_P(NormalisedOrNotFastAndExact, Qwen2MoeReference,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& one) {
                           return fmt::format("{}_{}",
                                              std::get<0>(one.param) ? "normalised" : "softmax",
                                              std::get<1>(one.param) ? "exact" : "fast");
                         });

}  // namespace
}  // namespace heddle

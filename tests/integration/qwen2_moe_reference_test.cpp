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
#include "checkpoint/dummy_weights.h"
#include "checkpoint/safetensors.h"
#include "integration/every_feeding.h"
#include "models/registry.h"

namespace heddle {
namespace {

using nlohmann::json;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

constexpr int64_t kVocabulary = 96, kHidden = 48, kLayers = 3;
constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 12;
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
      : weights_(std::move(weights)), normalises_(normalises) {}

  [[nodiscard]] Rows logits(const std::vector<TokenId>& ids) const {
    Rows h;
    for (const TokenId id : ids) h.push_back(row_of("model.embed_tokens.weight", id));
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string name = fmt::format("model.layers.{}.", layer);
      add(h, attention(name + "self_attn.", norms(h, name + "input_layernorm.weight")));
      Rows y;
      for (const Row& x : norms(h, name + "post_attention_layernorm.weight")) {
        y.push_back(layer == 0 ? swiglu(name + "mlp.", x) : experts(name + "mlp.", x));
      }
      add(h, y);
    }
    Rows logits;
    for (const Row& x : norms(h, "model.norm.weight")) logits.push_back(product("lm_head", x));
    return logits;
  }

 private:
  [[nodiscard]] Row row_of(const std::string& name, int64_t row) const {
    const Tensor& tensor = weights_.at(name);
    const int64_t width = tensor.shape().rank() == 1 ? tensor.num_elements() : tensor.shape()[1];
    const float* first = tensor.view().as<float>() + row * width;
    return {first, first + width};
  }

  static double dot(const Row& a, const Row& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  }

  static void add(Rows& to, const Rows& from) {
    for (size_t t = 0; t < to.size(); ++t) {
      for (size_t i = 0; i < to[t].size(); ++i) to[t][i] += from[t][i];
    }
  }

  // With a bias where there is one.
  [[nodiscard]] Row product(const std::string& module, const Row& x) const {
    const int64_t N = weights_.at(module + ".weight").shape()[0];
    Row y = weights_.contains(module + ".bias") ? row_of(module + ".bias", 0)
                                                : Row(static_cast<size_t>(N));
    for (int64_t n = 0; n < N; ++n) {
      y[static_cast<size_t>(n)] += dot(row_of(module + ".weight", n), x);
    }
    return y;
  }

  [[nodiscard]] Rows norms(const Rows& h, const std::string& name) const {
    const Row weight = row_of(name, 0);
    Rows result = h;
    for (Row& x : result) {
      const double scale = 1 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + kEpsilon);
      for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
    }
    return result;
  }

  static void rotate(Row& heads, int64_t position) {
    constexpr int64_t kHalf = kHeadDim / 2;
    for (size_t head = 0; head < heads.size(); head += kHeadDim) {
      for (int64_t i = 0; i < kHalf; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(kTheta, -2.0 * static_cast<double>(i) / kHeadDim);
        double& a = heads[head + static_cast<size_t>(i)];
        double& b = heads[head + static_cast<size_t>(i + kHalf)];
        std::tie(a, b) = std::pair(a * std::cos(angle) - b * std::sin(angle),
                                   b * std::cos(angle) + a * std::sin(angle));
      }
    }
  }

  static Row softmax(Row scores) {
    const double largest = *std::ranges::max_element(scores);
    for (double& score : scores) score = std::exp(score - largest);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    for (double& score : scores) score /= sum;
    return scores;
  }

  [[nodiscard]] Rows attention(const std::string& name, const Rows& x) const {
    Rows keys, values, outputs;
    for (size_t t = 0; t < x.size(); ++t) {
      Row q = product(name + "q_proj", x[t]);
      keys.push_back(product(name + "k_proj", x[t]));
      values.push_back(product(name + "v_proj", x[t]));
      rotate(q, static_cast<int64_t>(t));
      rotate(keys.back(), static_cast<int64_t>(t));
      Row all(static_cast<size_t>(kHeads * kHeadDim));
      for (int64_t head = 0; head < kHeads; ++head) {
        const auto from = static_cast<size_t>(head * kHeadDim);
        const auto kv_from = static_cast<size_t>(head / (kHeads / kKvHeads) * kHeadDim);
        Row scores(t + 1);
        for (size_t j = 0; j <= t; ++j) {
          for (size_t i = 0; i < kHeadDim; ++i) scores[j] += q[from + i] * keys[j][kv_from + i];
          scores[j] /= std::sqrt(static_cast<double>(kHeadDim));
        }
        const Row weights = softmax(scores);
        for (size_t j = 0; j <= t; ++j) {
          for (size_t i = 0; i < kHeadDim; ++i) {
            all[from + i] += weights[j] * values[j][kv_from + i];
          }
        }
      }
      outputs.push_back(product(name + "o_proj", all));
    }
    return outputs;
  }

  [[nodiscard]] Row swiglu(const std::string& name, const Row& x) const {
    Row gate = product(name + "gate_proj", x);
    const Row up = product(name + "up_proj", x);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    return product(name + "down_proj", gate);
  }

  [[nodiscard]] Row experts(const std::string& name, const Row& x) const {
    const Row weights = softmax(product(name + "gate", x));
    std::vector<size_t> order(weights.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, std::greater(), [&](size_t e) { return weights[e]; });
    order.resize(kPerToken);
    double sum = 0;
    for (const size_t e : order) sum += weights[e];
    const double gate = 1 / (1 + std::exp(-product(name + "shared_expert_gate", x)[0]));
    Row y = swiglu(name + "shared_expert.", x);
    for (double& value : y) value *= gate;
    for (const size_t e : order) {
      const Row of_expert = swiglu(fmt::format("{}experts.{}.", name, e), x);
      const double weight = weights[e] / (normalises_ ? sum : 1);
      for (size_t i = 0; i < y.size(); ++i) y[i] += weight * of_expert[i];
    }
    return y;
  }

  std::map<std::string, Tensor> weights_;
  bool normalises_;
};

// The values of every hub tensor: large enough for biases, scores and gates to differ between
// tokens.
std::map<std::string, Tensor> seeded_weights(const json& config) {
  std::map<std::string, Tensor> weights;
  const auto parsed = models::parse_config(config.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  if (!parsed.ok()) return weights;
  const checkpoint::DummyWeights source(11, DType::kF32);
  for (const auto& spec : models::create_model(*parsed)->weight_specs()) {
    for (const auto& piece : spec.alternatives.front()) {
      const auto stored = source.find(
          {.name = piece.tensor.name, .shape = piece.tensor.shape, .initial = spec.initial});
      Tensor tensor(piece.tensor.shape, DType::kF32);
      source.read(*stored, 0, tensor.num_elements(), DType::kF32, tensor.view().data);
      if (spec.initial == checkpoint::Initial::kSmall) {
        for (float& value : tensor.span<float>()) value *= 10;
      }
      weights.emplace(piece.tensor.name, std::move(tensor));
    }
  }
  return weights;
}

class Qwen2MoeReference : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(Qwen2MoeReference, IsComputedInAnyChunksAndBatches) {
  const auto [normalises, exact] = GetParam();
  const json config = config_of(normalises);
  std::map<std::string, Tensor> weights = seeded_weights(config);
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

// SPDX-License-Identifier: Apache-2.0
// Step 3.5 and 3.7: sliding layers with more query heads, a gate for each head, zero-centred norms,
// and experts with a shared expert. In some layers the activation is bounded, separately for routed
// and shared experts. StepFun, "Step 3.5 Flash", arXiv:2602.10604.
//
// Checkpoints with a vision tower are served as text models: the tower is ignored.
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "models/layers/decoder.h"
#include "models/model.h"
#include "models/step3/step3_config.h"

namespace heddle::models {

namespace {

using checkpoint::ModelConfig;

AttentionOptions attention_of_step3(const ModelConfig& config, int64_t layer) {
  const auto& own = config.own.get<Step3Config>();
  AttentionOptions attention = in_layer(attention_options(config), config, layer);
  if (attention.window > 0) attention.num_heads = own.num_sliding_heads;
  attention.qk_norm = QkNorm::kHeads;
  attention.qk_norm_offset = 1;
  attention.output_gate = OutputGate::kHeads;
  attention.softmax_scale = 1 / std::sqrt(own.score_width);
  return attention;
}

// Routed and shared experts are two branches of one block, because the files name them separately.
DecoderLayer layer_of_step3(const ModelConfig& config, int64_t i) {
  const auto& own = config.own.get<Step3Config>();
  const auto layer = static_cast<size_t>(i);
  const bool sparse = config.is_moe_layer[layer];
  DecoderLayer result = make_layer(
      Frame::kPre, {.mixer = std::make_unique<Attention>(attention_of_step3(config, i))},
      {.feed_forward = std::make_unique<GatedMlp>(
           config.hidden_size, sparse ? own.shared_intermediate_size : config.intermediate_size,
           MlpOptions{.limit = own.shared_limits[layer]})});
  if (!sparse) return result;
  std::vector<Branch>& branches = result.blocks.back().branches;
  branches.front().hub_scope = "share_expert.";
  branches.push_back({.feed_forward = std::make_unique<SparseMoe>(config.hidden_size, *config.moe,
                                                                  own.expert_limits[layer]),
                      .hub_scope = "moe."});
  return result;
}

std::unique_ptr<const Model> create_step3(const ModelConfig& config) {
  DecoderOptions options{.norm_offset = 1,
                         .ignored_prefixes = {"vision_model.", "vit_large_projector.",
                                              "model.vision_model.", "model.vit_large_projector."}};
  constexpr int64_t kMostPredicting = 8;  // most layers after the others that predict further
                                          // tokens
  for (int64_t i = 0; i < kMostPredicting; ++i) {
    options.ignored_prefixes.push_back(fmt::format("model.layers.{}.", config.num_layers + i));
  }
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) layers.push_back(layer_of_step3(config, i));
  return make_decoder(config, std::move(options), std::move(layers));
}

}  // namespace

Family step3() {
  return {.name = "Step 3.5",
          .architectures = {"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"},
          .model_types = {{"step3p5", "Step3p5ForCausalLM"},
                          {"step3p7", "Step3p7ForConditionalGeneration"}},
          .shared_keys = step3_keys,
          .read_config = read_step3_config,
          .create = create_step3};
}

}  // namespace heddle::models

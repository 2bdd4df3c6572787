// SPDX-License-Identifier: Apache-2.0
// GLM-4.5, 4.6 and 4.7: grouped-query attention that rotates half of each head, with biases and
// norms in some models, and experts as in DeepSeek-V3. GLM-4.5 team, "GLM-4.5", arXiv:2508.06471.
#include <algorithm>

#include <fmt/format.h>

#include "models/drafts/prediction_head.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

struct Glm4MoeConfig {
  bool qk_norm = false;
  int64_t num_nextn_predict_layers = 0;  // stored after the others; they draft

  bool operator==(const Glm4MoeConfig&) const = default;
};

void read_glm4_moe_config(ConfigReader& reader, ModelConfig& config) {
  config.rope.partial_rotary_factor = 0.5;
  config.attention_bias = reader.boolean("attention_bias", false);
  const std::string_view predicting = reader.spelling("num_nextn_predict_layers", "num_mtp_layers");
  config.own.set(Glm4MoeConfig{.qk_norm = reader.boolean("use_qk_norm", false),
                               .num_nextn_predict_layers = reader.integer(predicting, 0, {0, 64})});
  read_first_dense_layers(reader, config, /*default_dense=*/1);
  if (config.num_moe_layers() == 0) return;
  config.moe = read_experts(reader, {.count = {"n_routed_experts"},
                                     .per_token = {"num_experts_per_tok"},
                                     .width = {"moe_intermediate_size"}});
  read_shared_experts(reader, "n_shared_experts", *config.moe);
  config.moe->router = {.sigmoid = true,
                        .corrected = true,
                        .scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6})};
  read_expert_groups(reader, "n_group", *config.moe);
  config.moe->normalize_top_k = reader.boolean("norm_topk_prob", true);
  reader.disregard("topk_method");
  if (reader.text("scoring_func", std::string("sigmoid")) != "sigmoid") {
    reader.refuse("scoring_func", "only \"sigmoid\" is served");
  }
}

AttentionOptions attention_of_glm4_moe(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = config.attention_bias;
  if (config.own.get<Glm4MoeConfig>().qk_norm) attention.qk_norm = QkNorm::kHeads;
  return attention;
}

std::unique_ptr<const Model> create_glm4_moe(const ModelConfig& config) {
  DecoderOptions options;
  for (int64_t i = 0; i < config.own.get<Glm4MoeConfig>().num_nextn_predict_layers; ++i) {
    options.ignored_prefixes.push_back(fmt::format("model.layers.{}.", config.num_layers + i));
  }
  return make_decoder(config, std::move(options),
                      transformer_layers(config, attention_of_glm4_moe(config)));
}

std::unique_ptr<const DraftModel> create_glm4_moe_head(const ModelConfig& config) {
  if (config.own.get<Glm4MoeConfig>().num_nextn_predict_layers == 0) return nullptr;
  return make_prediction_head(
      config, {nextn_names(config.num_layers), nextn_names(0)},
      transformer_layer(config, attention_of_glm4_moe(config), {}, config.num_layers - 1),
      /*norm_offset=*/0);
}

}  // namespace

Family glm4_moe() {
  return {.name = "GLM-4.5",
          .architectures = {"Glm4MoeForCausalLM"},
          .model_types = {{"glm4_moe", "Glm4MoeForCausalLM"}},
          .read_config = read_glm4_moe_config,
          .create = create_glm4_moe,
          .create_head = create_glm4_moe_head};
}

}  // namespace heddle::models

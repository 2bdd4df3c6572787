// SPDX-License-Identifier: Apache-2.0
// GLM-4.5, 4.6 and 4.7: grouped-query attention that rotates half of each head, with biases and
// norms in some models, and experts as in DeepSeek-V3. GLM-4.5 team, "GLM-4.5", arXiv:2508.06471.
// GLM-4.7-Flash has the latent attention of DeepSeek-V3 in its place, and is that model in other
// sizes.
#include <algorithm>

#include <fmt/format.h>

#include "models/drafts/prediction_head.h"
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/latent_attention.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

struct Glm4MoeConfig {
  bool qk_norm = false;
  int64_t num_nextn_predict_layers = 0;  // draft layers, stored after the others

  bool operator==(const Glm4MoeConfig&) const = default;
};

void read_glm4_moe_config(ConfigReader& reader, ModelConfig& config) {
  Glm4MoeConfig own;
  if (config.architecture.starts_with("Glm4MoeLite")) {
    read_latent_attention(reader, config);
  } else {
    config.rope.partial_rotary_factor = 0.5;
    config.attention_bias = reader.boolean("attention_bias", false);
    own.qk_norm = reader.boolean("use_qk_norm", false);
  }
  own.num_nextn_predict_layers =
      reader.integer(reader.spelling("num_nextn_predict_layers", "num_mtp_layers"), 0, {0, 64});
  config.own.set(own);
  read_listed_moe_layers(reader, config, /*default_dense=*/1);
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

DecoderLayer layer_of_glm4_moe(const ModelConfig& config, int64_t layer) {
  if (config.latent_attention) {
    return pre_norm_layer(std::make_unique<LatentAttention>(config),
                          make_feed_forward(config, layer));
  }
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = config.attention_bias;
  if (config.own.get<Glm4MoeConfig>().qk_norm) attention.qk_norm = QkNorm::kHeads;
  return transformer_layer(config, in_layer(attention, config, layer), {}, layer);
}

std::unique_ptr<const Model> create_glm4_moe(const ModelConfig& config) {
  DecoderOptions options;
  for (int64_t i = 0; i < config.own.get<Glm4MoeConfig>().num_nextn_predict_layers; ++i) {
    options.ignored_prefixes.push_back(fmt::format("model.layers.{}.", config.num_layers + i));
  }
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) layers.push_back(layer_of_glm4_moe(config, i));
  return make_decoder(config, std::move(options), std::move(layers));
}

std::unique_ptr<const DraftModel> create_glm4_moe_head(const ModelConfig& config) {
  if (config.own.get<Glm4MoeConfig>().num_nextn_predict_layers == 0) return nullptr;
  return make_prediction_head(config, {nextn_names(config.num_layers), nextn_names(0)},
                              layer_of_glm4_moe(config, config.num_layers - 1),
                              /*norm_offset=*/0);
}

void translate_glm4_moe(GgufTranslation& gguf) {
  translate_transformer(gguf,
                        {.architecture = "Glm4MoeForCausalLM", .mlp_norm = "post_attention_norm"});
  gguf.set("attention_bias",
           (gguf.tensor("blk.0.attn_q.bias") || gguf.tensor("blk.0.attn_qkv.bias")));
  gguf.set("use_qk_norm", gguf.tensor("blk.0.attn_q_norm.weight").has_value());
  translate_routed_experts(gguf, "mlp.");
  require_sigmoid_scores(gguf);
}

}  // namespace

Family glm4_moe() {
  return {.name = "GLM-4.5",
          .architectures = {"Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM"},
          .model_types = {{"glm4_moe", "Glm4MoeForCausalLM"},
                          {"glm4_moe_lite", "Glm4MoeLiteForCausalLM"}},
          .read_config = read_glm4_moe_config,
          .create = create_glm4_moe,
          .create_head = create_glm4_moe_head,
          .gguf = {{"glm4moe", translate_glm4_moe}}};
}

}  // namespace heddle::models

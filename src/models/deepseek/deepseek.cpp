// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 and DeepSeek-V3 (R1, V3.1, Kimi-K2, the text part of Kimi-K2.5): latent attention in
// every layer, and a mixture of experts with shared ones in all but the first. V2 chooses by
// softmax scores, V3 by sigmoid scores with a correction that balances the experts. DeepSeek-AI,
// arXiv:2405.04434 and arXiv:2412.19437.
//
// The layers that predict further tokens are stored after the others. The first of them is used as
// a draft model; a plain forward pass does not use them.
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "models/deepseek/deepseek_config.h"
#include "models/drafts/prediction_head.h"
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/feed_forward.h"
#include "models/layers/latent_attention.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;
using checkpoint::MoeConfig;

// Softmax scores. The largest ones are chosen among all experts, or in the groups that contain the
// best experts.
void read_v2_router(ConfigReader& reader, MoeConfig& moe) {
  const std::string method = reader.text("topk_method", std::string("greedy"));
  if (method == "group_limited_greedy") {
    read_expert_groups(reader, "n_group", moe);
  } else if (method == "greedy") {  // "greedy" ignores groups
    reader.disregard("n_group");
    reader.disregard("topk_group");
  } else {
    reader.refuse("topk_method", "served are \"greedy\" and \"group_limited_greedy\"");
  }
  if (reader.text("scoring_func", std::string("softmax")) != "softmax") {
    reader.refuse("scoring_func", "DeepSeek-V2 has \"softmax\"");
  }
  moe.normalize_top_k = reader.boolean("norm_topk_prob", false) && moe.num_experts_per_token > 1;
  // The original code applies the scale only to weights that are not normalised.
  if (moe.normalize_top_k) moe.router->scale = 1.0;
}

// Sigmoid scores. A bias corrects the choice, and a group's score is the sum of its two best
// experts.
void read_v3_router(ConfigReader& reader, MoeConfig& moe) {
  moe.router->sigmoid = true;
  moe.router->corrected = true;
  if (reader.text("topk_method", std::string("noaux_tc")) != "noaux_tc") {
    reader.refuse("topk_method", "DeepSeek-V3 has \"noaux_tc\"");
  }
  if (reader.text("scoring_func", std::string("sigmoid")) != "sigmoid") {
    reader.refuse("scoring_func", "DeepSeek-V3 has \"sigmoid\"");
  }
  read_expert_groups(reader, "n_group", moe);
  moe.normalize_top_k = reader.boolean("norm_topk_prob", true);
}

void read_deepseek_config(ConfigReader& reader, ModelConfig& config) {
  read_latent_attention(reader, config);
  const int64_t num_predicting = reader.integer("num_nextn_predict_layers", 0,
                                                {.low = -checkpoint::kPositions.high, .high = 64});
  if (num_predicting < 0) {
    reader.note(
        fmt::format("config.json: num_nextn_predict_layers is {}; none is read", num_predicting));
  }
  config.own.set(DeepSeekConfig{.num_nextn_predict_layers = std::max<int64_t>(num_predicting, 0)});
  if (!reader.has("n_routed_experts")) return;
  read_first_dense_layers(reader, config, /*default_dense=*/0);
  MoeConfig moe = read_experts(reader, {.count = {"n_routed_experts"},
                                        .per_token = {"num_experts_per_tok"},
                                        .width = {"moe_intermediate_size"}});
  read_shared_experts(reader, "n_shared_experts", moe);
  moe.router = {.scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6})};
  if (config.architecture.starts_with("DeepseekV2")) {
    read_v2_router(reader, moe);
  } else {
    read_v3_router(reader, moe);
  }
  if (config.num_moe_layers() > 0) config.moe = moe;
}

int64_t num_drafting_layers(const ModelConfig& config) {
  return config.own.get<DeepSeekConfig>().num_nextn_predict_layers;
}

bool is_kimi_k25(const ModelConfig& config) { return config.architecture.starts_with("Kimi"); }

// Names of Kimi-K2.5's tensors: the language model has a prefix, and some files that transformers
// saved call its layers "blocks". The tensors of the vision tower are ignored.
DecoderOptions decoder_options(const ModelConfig& config) {
  if (!is_kimi_k25(config)) return {};
  const std::string prefix = "language_model.model.", head = "language_model.lm_head";
  return {.hub_prefix = prefix,
          .hub_head = head,
          .other_names = {{.prefix = prefix, .head = head, .layers = "blocks."},
                          {.prefix = "model.language_model."}},
          .ignored_prefixes = {"vision_tower.", "mm_projector.", "model.vision_tower.",
                               "model.mm_projector."}};
}

std::unique_ptr<const Model> create_deepseek(const ModelConfig& config) {
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    layers.push_back(
        pre_norm_layer(std::make_unique<LatentAttention>(config), make_feed_forward(config, i)));
  }
  DecoderOptions options = decoder_options(config);
  for (int64_t i = 0; i < num_drafting_layers(config); ++i) {
    options.ignored_prefixes.push_back(
        fmt::format("{}layers.{}.", options.hub_prefix, config.num_layers + i));
  }
  return make_decoder(config, std::move(options), std::move(layers));
}

// The draft model: the first layer after the model's own; in an extracted checkpoint it is layer 0.
std::unique_ptr<const DraftModel> create_deepseek_head(const ModelConfig& config) {
  if (num_drafting_layers(config) == 0 || is_kimi_k25(config)) return nullptr;
  return make_prediction_head(config, {nextn_names(config.num_layers), nextn_names(0)},
                              pre_norm_layer(std::make_unique<LatentAttention>(config),
                                             make_feed_forward(config, config.num_layers - 1)),
                              /*norm_offset=*/0);
}

// Converters since 2025 store attention as if it had one key head, the latent, with the true head
// widths as *_mla, and kv_b_proj in two tensors. The scores of V2's experts are a softmax, those of
// V3 sigmoids.
void translate_deepseek(GgufTranslation& gguf) {
  constexpr int64_t kSigmoid = 2;
  const bool is_v3 = gguf.integer("expert_gating_func").value_or(1) == kSigmoid;
  translate_transformer(gguf,
                        {.architecture = is_v3 ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM",
                         .own_heads = true,
                         .own_rope = true});
  const int64_t num_heads = gguf.required("attention.head_count");
  const int64_t rotated = gguf.required("rope.dimension_count");
  gguf.set("num_attention_heads", num_heads);
  gguf.set("num_key_value_heads", num_heads);
  gguf.integer("attention.head_count_kv");
  gguf.set("intermediate_size", gguf.same_in_all_layers("feed_forward_length").value_or(0));
  const auto width_of = [&](std::string_view latent, std::string_view old) {
    const std::optional<int64_t> shared = gguf.integer(old);
    return gguf.integer(latent).value_or(shared.value_or(0));
  };
  gguf.set("qk_nope_head_dim",
           width_of("attention.key_length_mla", "attention.key_length") - rotated);
  gguf.set("v_head_dim", width_of("attention.value_length_mla", "attention.value_length"));
  gguf.set("qk_rope_head_dim", rotated);
  gguf.set("kv_lora_rank", gguf.required("attention.kv_lora_rank"));
  gguf.copy_integer("attention.q_lora_rank", "q_lora_rank");
  translate_rope(gguf, rotated);
  translate_routed_experts(gguf, "mlp.");
  if (!is_v3 && gguf.integer("expert_group_count").value_or(1) > 1) {
    gguf.set("topk_method", "group_limited_greedy");
  }
  gguf.in_layers({
      {.stored = "attn_q_a", .hub = "self_attn.q_a_proj"},
      {.stored = "attn_q_a_norm", .hub = "self_attn.q_a_layernorm"},
      {.stored = "attn_q_b", .hub = "self_attn.q_b_proj"},
      {.stored = "attn_kv_a_mqa", .hub = "self_attn.kv_a_proj_with_mqa"},
      {.stored = "attn_kv_a_norm", .hub = "self_attn.kv_a_layernorm"},
      {.stored = "attn_kv_b", .hub = "self_attn.kv_b_proj"},
      {.stored = "attn_k_b", .hub = "self_attn.k_b_proj", .as_numbers = true},
      {.stored = "attn_v_b", .hub = "self_attn.v_b_proj", .as_numbers = true},
  });
}

}  // namespace

Family deepseek() {
  return {.name = "DeepSeek",
          .architectures = {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM",
                            "KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"},
          .model_types = {{"deepseek_v2", "DeepseekV2ForCausalLM"},
                          {"deepseek_v3", "DeepseekV3ForCausalLM"},
                          {"kimi_k2", "DeepseekV3ForCausalLM"},
                          {"kimi_k25", "KimiK25ForConditionalGeneration"}},
          .read_config = read_deepseek_config,
          .create = create_deepseek,
          .create_head = create_deepseek_head,
          .gguf = {{"deepseek2", translate_deepseek}}};
}

}  // namespace heddle::models

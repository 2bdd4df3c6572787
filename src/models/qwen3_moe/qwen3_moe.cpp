// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE: the attention of Qwen3 and a mixture of experts in place of the MLP, without a shared
// expert. "Qwen3 Technical Report", arXiv:2505.09388. Of Qwen3-VL with experts the language model
// is served: its rotary positions in text are the plain ones.
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"
#include "models/vision/vision_config.h"

namespace heddle::models {

namespace {

bool has_vision_tower(const checkpoint::ModelConfig& config) {
  return config.architecture.ends_with("ForConditionalGeneration");
}

void read_qwen3_moe_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", false);
  require_qk_norm(reader, config);
  const std::string_view count = reader.spelling("num_experts", "num_local_experts");
  read_stepped_experts(
      reader, config,
      {.count = {count}, .per_token = {"num_experts_per_tok"}, .width = {"moe_intermediate_size"}});
  if (!config.moe) return;
  const bool vision = has_vision_tower(config);
  config.moe->normalize_top_k = reader.boolean("norm_topk_prob", vision);
  config.moe->input_major = vision;
}

std::unique_ptr<const Model> create_qwen3_moe(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kHeads;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  return make_decoder(config,
                      {.hub_prefix = has_vision_tower(config) ? "model.language_model." : "model.",
                       .ignored_prefixes = {"model.visual.", "visual."}},
                      transformer_layers(config, attention));
}

// All published models normalise the weights of the chosen experts; the metadata does not say so.
void translate_qwen3_moe(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "Qwen3MoeForCausalLM"});
  translate_experts(gguf);
  gguf.set("norm_topk_prob", true);
  gguf.disregard("n_deepstack_layers");  // this key and the next one concern images
  gguf.disregard("rope.dimension_sections");
}

}  // namespace

Family qwen3_moe() {
  return {.name = "Qwen3-MoE",
          .architectures = {"Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration"},
          .model_types = {{"qwen3_moe", "Qwen3MoeForCausalLM"},
                          {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration"}},
          .read_config = read_qwen3_moe_config,
          .create = create_qwen3_moe,
          .read_tower = read_deep_tower,
          .gguf = {{"qwen3moe", translate_qwen3_moe}, {"qwen3vlmoe", translate_qwen3_moe}}};
}

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// Mistral: Llama with a sliding window, in every layer unless the config says otherwise. Jiang et
// al., "Mistral 7B", arXiv:2310.06825. From v0.2 on sliding_window is null: full attention.
// Ministral 3 also scales queries by their positions (RopeConfig::query_scale_beta). Mistral 4 has
// the latent attention of DeepSeek-V3 with such queries, and experts that are chosen by a softmax
// beside a shared one.
//
// Checkpoints with a vision tower (Mistral Small 3.1 and 4, Ministral 3) are served as text models:
// the tower is ignored.
#include <utility>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/latent_attention.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

constexpr std::string_view kWithVision = "Mistral3ForConditionalGeneration";

// Whether the file, or the language model of a file with a vision tower, is Mistral 4.
bool is_mistral4(const ConfigReader& reader) { return reader.has("kv_lora_rank"); }

// In the file partial_rotary_factor is a fraction of the whole head. Of qk_rope_head_dim, the width
// that is rotated here, every channel is rotated.
void read_mistral4_rotation(ConfigReader& reader, ModelConfig& config) {
  config.rope =
      checkpoint::read_rope_configs(reader, {}, /*slides=*/false, config.max_position_embeddings)
          .rope;
  config.rope.partial_rotary_factor = 1;
}

void read_mistral4_config(ConfigReader& reader, ModelConfig& config) {
  read_latent_attention(reader, config);
  read_mistral4_rotation(reader, config);
  read_first_dense_layers(reader, config, /*default_dense=*/0);
  if (config.num_moe_layers() == 0) return;
  config.moe = read_experts(reader, {.count = {"n_routed_experts"},
                                     .per_token = {"num_experts_per_tok"},
                                     .width = {"moe_intermediate_size"}});
  read_shared_experts(reader, "n_shared_experts", *config.moe);
  config.moe->router = {.scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6})};
  config.moe->normalize_top_k = reader.boolean("norm_topk_prob", true);
}

void read_mistral_config(ConfigReader& reader, ModelConfig& config) {
  if (config.architecture == "Mistral4ForCausalLM" ||
      (config.architecture == kWithVision && is_mistral4(reader))) {
    read_mistral4_config(reader, config);
    return;
  }
  checkpoint::read_windows_everywhere(reader, config);
  if (is_mistral4(reader)) {
    reader.refuse("kv_lora_rank", "only Mistral 4 is served with latent attention");
  }
}

checkpoint::SharedKeys mistral_keys(ConfigReader& reader) {
  return {.reads_rope = is_mistral4(reader)};
}

std::vector<DecoderLayer> mistral_layers(const ModelConfig& config) {
  if (!config.latent_attention) return transformer_layers(config, attention_options(config));
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    layers.push_back(
        pre_norm_layer(std::make_unique<LatentAttention>(config), make_feed_forward(config, i)));
  }
  return layers;
}

std::unique_ptr<const Model> create_mistral(const ModelConfig& config) {
  DecoderOptions options;
  if (config.architecture == kWithVision) {
    options = {.hub_prefix = "language_model.model.",
               .hub_head = "language_model.lm_head",
               .other_names = {{.prefix = "model.language_model."}},
               .ignored_prefixes = {"vision_tower.", "multi_modal_projector.",
                                    "model.vision_tower.", "model.multi_modal_projector."}};
  }
  return make_decoder(config, std::move(options), mistral_layers(config));
}

// Whether the file has a window. Files without one cannot be told from Llama's and mean the same
// model.
bool has_gguf_window(GgufTranslation& gguf) {
  return gguf.integer("attention.sliding_window").value_or(0) > 0 &&
         gguf.integer("expert_count").value_or(0) == 0;
}

// The converter stores the rows of queries and keys in pairs, for a rotation of neighbouring
// channels.
void translate_mistral(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "MistralForCausalLM", .pairs_rows = true});
  gguf.copy_integer("attention.sliding_window", "sliding_window");
}

}  // namespace

Family mistral() {
  return {.name = "Mistral",
          .architectures = {"MistralForCausalLM", "Ministral3ForCausalLM", "Mistral4ForCausalLM",
                            kWithVision},
          .model_types = {{"mistral", "MistralForCausalLM"},
                          {"ministral3", "Ministral3ForCausalLM"},
                          {"mistral4", "Mistral4ForCausalLM"},
                          {"mistral3", kWithVision}},
          .shared_keys = mistral_keys,
          .read_config = read_mistral_config,
          .create = create_mistral,
          .gguf = {{"llama", translate_mistral, has_gguf_window}}};
}

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// Qwen3.5, dense and with experts in every layer: a hybrid of gated delta networks and gated
// attention (layers/gated_hybrid.h), with separate projections.
//
// Of a checkpoint with a vision tower the language model is served; its rotary positions in text
// are the plain ones.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"
#include "models/gguf_mixers.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/gated_hybrid.h"
#include "models/model.h"
#include "models/vision/vision_config.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

// Checks layer_types against the interval. Files have both keys; transformers reads the interval
// only without layer_types.
void compare_interval(ConfigReader& reader, const ModelConfig& config) {
  const nlohmann::json* const value = reader.find("full_attention_interval");
  if (value == nullptr || !reader.has("layer_types") || !value->is_number_integer()) return;
  const auto interval = value->get<int64_t>();
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const bool full = config.layer_kinds[static_cast<size_t>(i)] == LayerKind::kFullAttention;
    if (full == (interval != 0 && (i + 1) % interval == 0)) continue;
    reader.note(fmt::format(
        "config.json: full_attention_interval is {}, but layer_types has another layer {}; "
        "layer_types is used",
        interval, i));
    return;
  }
}

// The weights of the chosen experts always sum to one, whatever norm_topk_prob says.
void read_experts_everywhere(ConfigReader& reader, ModelConfig& config) {
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), true);
  const std::string_view count = reader.spelling("num_experts", "num_local_experts");
  config.moe = read_experts(
      reader,
      {.count = {count}, .per_token = {"num_experts_per_tok"}, .width = {"moe_intermediate_size"}});
  config.moe->shared_intermediate_size =
      reader.integer("shared_expert_intermediate_size", std::nullopt, {0, checkpoint::kWidth.high});
  config.moe->gated_shared_expert = true;
}

void read_qwen3_5_config(ConfigReader& reader, ModelConfig& config) {
  if (config.architecture.ends_with("ForConditionalGeneration")) {
    config.rope.sections = {11, 11, 10};
    config.rope.interleaves_sections = true;
  }
  read_gated_hybrid(reader, config);
  compare_interval(reader, config);
  if (config.architecture.starts_with("Qwen3_5Moe")) read_experts_everywhere(reader, config);
}

std::unique_ptr<const Model> create_qwen3_5(const ModelConfig& config) {
  const bool has_vision = config.architecture.ends_with("ForConditionalGeneration");
  return make_decoder(config,
                      {.hub_prefix = has_vision ? "model.language_model." : "model.",
                       .norm_offset = 1,
                       .ignored_prefixes = {"mtp.", "model.visual.", "visual."}},
                      gated_hybrid_layers(config));
}

void translate_qwen3_5_layers(GgufTranslation& gguf, std::string_view architecture) {
  translate_transformer(gguf, {.architecture = architecture,
                               .norms = checkpoint::GgufChange::kOneAdded,
                               .mlp_norm = "post_attention_norm"});
  gguf.disregard("rope.dimension_sections");  // concerns images; in text all sections have the same
                                              // position
  translate_delta_nets(gguf, GgufValueHeads::kTiled);
}

void translate_qwen3_5(GgufTranslation& gguf) {
  translate_qwen3_5_layers(gguf, "Qwen3_5ForCausalLM");
}

void translate_qwen3_5_moe(GgufTranslation& gguf) {
  translate_qwen3_5_layers(gguf, "Qwen3_5MoeForCausalLM");
  translate_experts(gguf);
  translate_shared_expert(gguf);
}

}  // namespace

Family qwen3_5() {
  return {.name = "Qwen3.5",
          .architectures = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration",
                            "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
          .model_types = {{"qwen3_5", "Qwen3_5ForConditionalGeneration"},
                          {"qwen3_5_text", "Qwen3_5ForCausalLM"},
                          {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"},
                          {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"}},
          .read_config = read_qwen3_5_config,
          .create = create_qwen3_5,
          .create_head = gated_hybrid_head,
          .read_tower = read_table_tower,
          .gguf = {{"qwen35", translate_qwen3_5}, {"qwen35moe", translate_qwen3_5_moe}}};
}

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// Granite 3 and 4, dense and with experts in every layer: Llama with factors on the embedding, on
// every block's output, on the attention scores and on the logits. IBM, "Granite 3.0 Language
// Models". The experts' weights are a softmax over the chosen logits, which equals the renormalised
// softmax over all logits.
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"

namespace heddle::models {

namespace {

struct GraniteConfig {
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double attention_multiplier = 1;
  double logits_scaling = 1;

  bool operator==(const GraniteConfig&) const = default;
};

void read_granite_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  const auto factor = [&](const char* key, double least) {
    return reader.number(key, 1.0, {least, 1e6});
  };
  config.own.set(GraniteConfig{.embedding_multiplier = factor("embedding_multiplier", -1e6),
                               .residual_multiplier = factor("residual_multiplier", -1e6),
                               .attention_multiplier = factor("attention_multiplier", -1e6),
                               .logits_scaling = factor("logits_scaling", 1e-6)});
  config.attention_bias = reader.boolean("attention_bias", false);
  if (config.architecture != "GraniteMoeForCausalLM") return;
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), true);
  config.moe = read_experts(reader, {.count = {"num_local_experts", 8},
                                     .per_token = {"num_experts_per_tok", 2},
                                     .width = {"intermediate_size"}});
  config.moe->router_name = "router.layer";
}

std::unique_ptr<const Model> create_granite(const checkpoint::ModelConfig& config) {
  const auto& own = config.own.get<GraniteConfig>();
  AttentionOptions attention = attention_options(config);
  attention.softmax_scale = own.attention_multiplier;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  return make_decoder(
      config, {.embedding_scale = own.embedding_multiplier, .logit_scale = 1 / own.logits_scaling},
      transformer_layers(
          config, attention,
          {.residual_scale = own.residual_multiplier, .moe_scope = "block_sparse_moe."}));
}

void translate_granite_layers(GgufTranslation& gguf, std::string_view architecture) {
  translate_transformer(gguf, {.architecture = architecture, .pairs_rows = true});
  translate_factors(gguf);
  if (gguf.tensor("blk.0.attn_q.bias") || gguf.tensor("blk.0.attn_qkv.bias"))
    gguf.set("attention_bias", true);
}

void translate_granite(GgufTranslation& gguf) {
  translate_granite_layers(gguf, "GraniteForCausalLM");
}

void translate_granite_moe(GgufTranslation& gguf) {
  translate_granite_layers(gguf, "GraniteMoeForCausalLM");
  gguf.set("num_local_experts", gguf.required("expert_count"));
  gguf.set("num_experts_per_tok", gguf.required("expert_used_count"));
  gguf.in_layers({{.stored = "ffn_gate_inp", .hub = "block_sparse_moe.router.layer"}});
  add_gguf_experts(gguf, "block_sparse_moe.");
}

}  // namespace

Family granite() {
  return {
      .name = "Granite",
      .architectures = {"GraniteForCausalLM", "GraniteMoeForCausalLM"},
      .model_types = {{"granite", "GraniteForCausalLM"}, {"granitemoe", "GraniteMoeForCausalLM"}},
      .read_config = read_granite_config,
      .create = create_granite,
      .gguf = {{"granite", translate_granite}, {"granitemoe", translate_granite_moe}}};
}

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// gpt-oss: attention with a sink per head and biases everywhere, sliding in every other layer, and
// experts with biases and a bounded SwiGLU. "gpt-oss-120b & gpt-oss-20b Model Card",
// arXiv:2508.10925.
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/model_config.h"
#include "models/gguf_translation.h"
#include "models/gpt_oss/biased_moe.h"
#include "models/layers/attention.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

void read_gpt_oss_moe(ConfigReader& reader, ModelConfig& config) {
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), true);
  const std::string_view count = reader.spelling("num_local_experts", "num_experts");
  config.moe = read_experts(
      reader,
      {.count = {count}, .per_token = {"num_experts_per_tok"}, .width = {"intermediate_size"}});
  config.own.set(GptOssConfig{.swiglu_limit = reader.number("swiglu_limit", 7.0, {1e-6, 1e6}),
                              .swiglu_alpha = reader.number("swiglu_alpha", 1.702, {1e-6, 1e6})});
}

void read_gpt_oss_config(ConfigReader& reader, ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", true);
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention}, [](int64_t layer) {
        return layer % 2 == 0 ? LayerKind::kSlidingAttention : LayerKind::kFullAttention;
      });
  checkpoint::read_sliding_window(reader, config, /*fallback=*/128);
  read_gpt_oss_moe(reader, config);
}

std::unique_ptr<const Model> create_gpt_oss(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  attention.sinks = true;

  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    layers.push_back(pre_norm_layer(std::make_unique<Attention>(in_layer(attention, config, i)),
                                    std::make_unique<BiasedMoe>(config.hidden_size, *config.moe,
                                                                config.own.get<GptOssConfig>())));
  }
  return make_decoder(config, {}, std::move(layers));
}

// The metadata omits the SwiGLU's limits, which are equal in all published models, and that rotary
// frequencies are not rounded to whole pairs.
void translate_gpt_oss(GgufTranslation& gguf) {
  translate_transformer(gguf,
                        {.architecture = "GptOssForCausalLM", .mlp_norm = "post_attention_norm"});
  gguf.set("num_local_experts", gguf.required("expert_count"));
  gguf.set("num_experts_per_tok", gguf.required("expert_used_count"));
  gguf.set("intermediate_size", gguf.required("expert_feed_forward_length"));
  gguf.copy_integer("attention.sliding_window", "sliding_window");
  gguf.set_in("rope_scaling", "truncate", false);
  gguf.in_layers({
      {.stored = "ffn_gate_inp", .hub = "mlp.router"},
      {.stored = "ffn_gate_exps", .hub = "mlp.experts.#.gate_proj"},
      {.stored = "ffn_up_exps", .hub = "mlp.experts.#.up_proj"},
      {.stored = "ffn_down_exps", .hub = "mlp.experts.#.down_proj"},
  });
  gguf.tensors_in_layers({{.stored = "attn_sinks.weight", .hub = "self_attn.sinks"}});
}

}  // namespace

Family gpt_oss() {
  return {.name = "gpt-oss",
          .architectures = {"GptOssForCausalLM"},
          .model_types = {{"gpt_oss", "GptOssForCausalLM"}},
          .read_config = read_gpt_oss_config,
          .create = create_gpt_oss,
          .gguf = {{"gpt-oss", translate_gpt_oss}}};
}

}  // namespace heddle::models

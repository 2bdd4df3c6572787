// SPDX-License-Identifier: Apache-2.0
// Seed-OSS: Llama with biases on queries, keys and values, and an explicit head width.
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_seed_oss_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", true);
  config.own.set(reader.boolean("attention_out_bias", false));
}

std::unique_ptr<const Model> create_seed_oss(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.own.get<bool>();
  return make_decoder(config, {}, transformer_layers(config, attention));
}

void translate_seed_oss(GgufTranslation& gguf) {
  translate_transformer(gguf,
                        {.architecture = "SeedOssForCausalLM", .mlp_norm = "post_attention_norm"});
  gguf.set("attention_bias",
           (gguf.tensor("blk.0.attn_q.bias") || gguf.tensor("blk.0.attn_qkv.bias")));
  gguf.set("attention_out_bias", gguf.tensor("blk.0.attn_output.bias").has_value());
}

}  // namespace

Family seed_oss() {
  return {.name = "Seed-OSS",
          .architectures = {"SeedOssForCausalLM"},
          .model_types = {{"seed_oss", "SeedOssForCausalLM"}},
          .read_config = read_seed_oss_config,
          .create = create_seed_oss,
          .gguf = {{"seed_oss", translate_seed_oss}}};
}

}  // namespace heddle::models

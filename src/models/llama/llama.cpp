// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3: attention with rotary positions and SwiGLU in every layer, nothing else.
// Touvron et al., "Llama 2", arXiv:2307.09288; "The Llama 3 Herd of Models", arXiv:2407.21783.
//
// Llama 3.1 and later stretch the long wavelengths of the rotary embedding (rope_type llama3).
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_llama_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", false);
}

std::unique_ptr<const Model> create_llama(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  return make_decoder(config, {}, transformer_layers(config, attention));
}

// The converter stores the rows of queries and keys in pairs, for a rotation of neighbouring
// channels.
void translate_llama(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "LlamaForCausalLM", .pairs_rows = true});
  if (gguf.tensor("blk.0.attn_q.bias") || gguf.tensor("blk.0.attn_qkv.bias"))
    gguf.set("attention_bias", true);
}

}  // namespace

Family llama() {
  return {.name = "Llama",
          .architectures = {"LlamaForCausalLM"},
          .model_types = {{"llama", "LlamaForCausalLM"}},
          .read_config = read_llama_config,
          .create = create_llama,
          .gguf = {{"llama", translate_llama}}};
}

}  // namespace heddle::models

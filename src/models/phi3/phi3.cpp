// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4: Llama with queries, keys and values in one stored tensor, and gate and up in
// another. Abdin et al., "Phi-3 Technical Report", arXiv:2404.14219.
//
// Models with longrope have two tables of frequencies, a short and a long one. If a sequence
// outgrows the original context, all of its rows must use the long table. The rows computed before
// are then wrong, so the sequence is computed again from its first token
// (StepLimits::short_rope_tokens).
#include <algorithm>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/longrope.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

void read_phi3_config(ConfigReader& reader, ModelConfig& config) {
  checkpoint::read_windows_everywhere(reader, config);
  if (!has_longrope(reader)) return;
  config.rope = read_longrope(reader, config);
  ConfigReader scaling = rope_scaling_of(reader);
  for (const char* key : {"short_mscale", "long_mscale"}) {
    if (scaling.has(key)) scaling.refuse(key, "Phi-3 is served without it");
  }
}

checkpoint::SharedKeys phi3_keys(ConfigReader& reader) {
  return {.reads_rope = has_longrope(reader)};
}

std::unique_ptr<const Model> create_phi3(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.is_fused = true;
  return make_decoder(config, {},
                      transformer_layers(config, attention, {.mlp = {.is_fused = true}}));
}

// A file with two tables of divisors uses longrope. A window of 0 means no window.
void translate_phi3(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "Phi3ForCausalLM",
                               .own_rope = true,
                               .names = {.qkv = "qkv_proj", .up = "mlp.gate_up_proj"}});
  const int64_t num_heads = std::max<int64_t>(gguf.required("attention.head_count"), 1);
  const int64_t head_dim = std::max<int64_t>(gguf.required("embedding_length") / num_heads, 1);
  gguf.set("rope_theta", gguf.number("rope.freq_base").value_or(10000));
  gguf.set("partial_rotary_factor",
           static_cast<double>(gguf.integer("rope.dimension_count").value_or(head_dim)) /
               static_cast<double>(head_dim));
  gguf.copy_integer("rope.scaling.original_context_length", "original_max_position_embeddings");
  if (const int64_t window = gguf.integer("attention.sliding_window").value_or(0); window > 0) {
    gguf.set("sliding_window", window);
  }
  const std::vector<float> long_ones = gguf.plain_values("rope_factors_long.weight");
  const std::vector<float> short_ones = gguf.plain_values("rope_factors_short.weight");
  if (long_ones.empty() || short_ones.empty()) return;
  nlohmann::json scaling = {
      {"type", "longrope"}, {"long_factor", long_ones}, {"short_factor", short_ones}};
  if (const auto factor = gguf.number("rope.scaling.attn_factor")) {
    scaling["attention_factor"] = *factor;
  }
  gguf.set("rope_scaling", std::move(scaling));
}

}  // namespace

Family phi3() {
  return {.name = "Phi-3",
          .architectures = {"Phi3ForCausalLM"},
          .model_types = {{"phi3", "Phi3ForCausalLM"}},
          .shared_keys = phi3_keys,
          .read_config = read_phi3_config,
          .create = create_phi3,
          .gguf = {{"phi3", translate_phi3}}};
}

}  // namespace heddle::models

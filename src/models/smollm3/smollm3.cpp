// SPDX-License-Identifier: Apache-2.0
// SmolLM3: Llama in which some layers do not rotate. Yang et al., "RoPE to NoRoPE and Back Again",
// arXiv:2501.18795.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::LayerKind;

// [num_layers]: whether a layer rotates. In the file's no_rope_layers, 1 means that it rotates.
std::vector<int64_t> read_rotations(checkpoint::ConfigReader& reader,
                                    const checkpoint::ModelConfig& config) {
  constexpr std::string_view kLayers = "no_rope_layers";
  std::vector<int64_t> rotates = reader.integers(kLayers, {0, 1});
  if (!rotates.empty() && std::ssize(rotates) != config.num_layers) {
    reader.fail(kLayers, fmt::format("but num_hidden_layers is {}", config.num_layers));
  }
  if (rotates.empty()) {
    const int64_t period = reader.interval("no_rope_layer_interval", 4);
    for (int64_t i = 0; i < config.num_layers; ++i) rotates.push_back((i + 1) % period != 0);
  }
  rotates.resize(static_cast<size_t>(config.num_layers), 1);
  return rotates;
}

void read_smollm3_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  config.rope.theta = 2e6;
  config.attention_bias = reader.boolean("attention_bias", false);
  const std::vector<int64_t> rotates = read_rotations(reader, config);
  const bool slides = reader.boolean("use_sliding_window", false);
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention}, [&](int64_t i) {
        return slides && rotates[static_cast<size_t>(i)] == 0 ? LayerKind::kSlidingAttention
                                                              : LayerKind::kFullAttention;
      });
  checkpoint::read_sliding_window(reader, config);
  config.own.set(rotates);
}

std::unique_ptr<const Model> create_smollm3(const checkpoint::ModelConfig& config) {
  const auto& rotates = config.own.get<std::vector<int64_t>>();
  AttentionOptions options = attention_options(config);
  options.qkv_bias = config.attention_bias;
  options.output_bias = config.attention_bias;
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    AttentionOptions attention = in_layer(options, config, i);
    if (rotates[static_cast<size_t>(i)] == 0) attention.rope_table.reset();
    layers.push_back(transformer_layer(config, attention, {}, i));
  }
  return make_decoder(config, {}, std::move(layers));
}

checkpoint::SharedKeys smollm3_keys(checkpoint::ConfigReader& /*reader*/) {
  return {.default_tied = true};
}

// In all published models every fourth layer does not rotate.
void translate_smollm3(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "SmolLM3ForCausalLM", .pairs_rows = true});
  gguf.set("no_rope_layer_interval", 4);
}

}  // namespace

Family smollm3() {
  return {.name = "SmolLM3",
          .architectures = {"SmolLM3ForCausalLM"},
          .model_types = {{"smollm3", "SmolLM3ForCausalLM"}},
          .shared_keys = smollm3_keys,
          .read_config = read_smollm3_config,
          .create = create_smollm3,
          .gguf = {{"smollm3", translate_smollm3}}};
}

}  // namespace heddle::models

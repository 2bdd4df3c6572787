// SPDX-License-Identifier: Apache-2.0
// Any text as config.json and generation_config.json: what is accepted must be fit to compute with.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "checkpoint/generation_config.h"
#include "checkpoint/model_config.h"
#include "core/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::checkpoint;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)parse_generation_config(text).ok();
  const heddle::Result<ModelConfig> config = parse_model_config(text);
  if (!config.ok()) return 0;
  HEDDLE_CHECK(config->num_attention_heads % config->num_key_value_heads == 0);
  HEDDLE_CHECK(config->rms_norm_eps > 0);
  HEDDLE_CHECK_EQ(static_cast<int64_t>(config->layer_kinds.size()), config->num_layers);
  HEDDLE_CHECK_EQ(config->linear_attention.has_value(),
                  config->num_layers_of(LayerKind::kLinearAttention) > 0);
  const RopeFrequencies frequencies = inverse_frequencies(config->rope, config->head_dim, 100000);
  if (config->quantization) {
    for (const std::string_view module : {"lm_head", "model.layers.11.mlp.experts.7.gate_proj"}) {
      (void)config->quantization->ignores(module);
      HEDDLE_CHECK_GE(config->quantization->bits_of(module), 1);
    }
  }
  for (const float frequency : frequencies.inverse) HEDDLE_CHECK(std::isfinite(frequency));
  HEDDLE_CHECK(std::isfinite(frequencies.attention_factor));
  return 0;
}

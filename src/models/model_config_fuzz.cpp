// SPDX-License-Identifier: Apache-2.0
// Any text as config.json, as every family reads it: what is accepted must be fit to compute with
// and to build a model from.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "models/layers/rope_table.h"
#include "models/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)models::parse_config(text).ok();
  // Names are hard to guess: all families try the text, whatever it names.
  for (const models::Family& family : models::families()) {
    Result<checkpoint::ModelConfig> config = checkpoint::parse_model_config(
        text,
        {.family = family.name, .shared_keys = family.shared_keys, .read = family.read_config});
    if (!config.ok()) continue;
    HEDDLE_CHECK(config->num_attention_heads % config->num_key_value_heads == 0);
    HEDDLE_CHECK(config->rms_norm_eps > 0);
    for (const models::RopeTable& table : models::rope_tables_of(*config)) {
      const auto frequencies = checkpoint::inverse_frequencies(table.rope, table.head_dim);
      for (const float frequency : frequencies.inverse) HEDDLE_CHECK(std::isfinite(frequency));
      for (const float frequency : frequencies.inverse_of_long) {
        HEDDLE_CHECK(std::isfinite(frequency));
      }
      HEDDLE_CHECK(std::isfinite(frequencies.attention_factor));
    }
    if (config->quantization) {
      for (const std::string_view module : {"lm_head", "model.layers.11.mlp.experts.7.gate_proj"}) {
        (void)config->quantization->ignores(module);
        HEDDLE_CHECK_GE(config->quantization->bits_of(module), 1);
      }
    }
    const models::CacheNeeds needs = family.create(*config)->cache_needs();
    HEDDLE_CHECK_LE(needs.num_kv_layers(), config->num_layers);
    HEDDLE_CHECK_LE(needs.num_state_layers(), config->num_layers);
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Fuzzes AdapterConfig: parses any text as adapter_config.json and matches its expressions with
// module paths.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "checkpoint/adapter_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = heddle::checkpoint::AdapterConfig::parse(text);
  if (!config.ok()) return 0;
  for (const std::string_view path : {"lm_head", "model.layers.17.mlp.experts.3.gate_proj", ""}) {
    (void)config->scaling(path);
    (void)config->targets(path);
    (void)config->parameters_of(path);
  }
  return 0;
}

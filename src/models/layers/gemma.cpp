// SPDX-License-Identifier: Apache-2.0
#include "models/layers/gemma.h"

#include <cmath>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace heddle::models {

checkpoint::SharedKeys gemma_keys(checkpoint::ConfigReader& /*reader*/) {
  return {.reads_activation = true, .default_tied = true};
}

void require_gelu(checkpoint::ConfigReader& reader) {
  const std::string_view key = "hidden_activation";
  reader.disregard("hidden_act");  // transformers does not read this key
  if (reader.text(key, std::string("gelu_pytorch_tanh")) != "gelu_pytorch_tanh") {
    reader.refuse(key, "only \"gelu_pytorch_tanh\" is served");
  }
}

double gemma_embedding_scale(const checkpoint::ModelConfig& config) {
  const double scale = std::sqrt(static_cast<double>(config.hidden_size));
  if (config.dtype != DType::kBf16) return scale;
  return static_cast<double>(to_float(to_bf16(static_cast<float>(scale))));
}

void use_vision_names(const checkpoint::ModelConfig& config, DecoderOptions& options) {
  if (!config.architecture.ends_with("ForConditionalGeneration")) return;
  options.hub_prefix = "model.language_model.";
  options.other_names = {{.prefix = "language_model.model.", .head = "language_model.lm_head"}};
  for (const char* outer : {"", "model."}) {
    for (const char* part : {"vision_tower.", "multi_modal_projector.", "audio_tower.",
                             "embed_vision.", "embed_audio."}) {
      options.ignored_prefixes.push_back(std::string(outer) + part);
    }
  }
}

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// Mistral: Llama with a sliding window, in every layer unless the config says otherwise. Jiang et
// al., "Mistral 7B", arXiv:2310.06825. From v0.2 on sliding_window is null: full attention.
// Ministral 3 also scales queries by their positions (RopeConfig::query_scale_beta).
//
// Checkpoints with a vision tower (Mistral Small 3.1, Ministral 3) are served as text models: the
// tower is ignored.
#include "checkpoint/model_config.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

constexpr std::string_view kWithVision = "Mistral3ForConditionalGeneration";

void read_mistral_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  checkpoint::read_windows_everywhere(reader, config);
  if (reader.has("kv_lora_rank")) {
    reader.refuse("kv_lora_rank", "Mistral is served without latent attention");
  }
}

std::unique_ptr<const Model> create_mistral(const checkpoint::ModelConfig& config) {
  DecoderOptions options;
  if (config.architecture == kWithVision) {
    options = {.hub_prefix = "language_model.model.",
               .hub_head = "language_model.lm_head",
               .other_names = {{.prefix = "model.language_model."}},
               .ignored_prefixes = {"vision_tower.", "multi_modal_projector.",
                                    "model.vision_tower.", "model.multi_modal_projector."}};
  }
  return make_decoder(config, std::move(options),
                      transformer_layers(config, attention_options(config)));
}

}  // namespace

Family mistral() {
  return {.name = "Mistral",
          .architectures = {"MistralForCausalLM", "Ministral3ForCausalLM", kWithVision},
          .model_types = {{"mistral", "MistralForCausalLM"},
                          {"ministral3", "Ministral3ForCausalLM"},
                          {"mistral3", kWithVision}},
          .read_config = read_mistral_config,
          .create = create_mistral};
}

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
#include "models/drafts/draft_config.h"

#include <string>

#include <fmt/format.h>

#include "checkpoint/mapped_file.h"
#include "checkpoint/model_folder.h"

namespace heddle::models {

namespace {

using checkpoint::ModelConfig;

Status check_fits(const ModelConfig& config, const ModelConfig& target) {
  const auto differs = [](const char* key, int64_t value, int64_t of_model) {
    return invalid_argument(fmt::format(
        "{} is {}, that of the model {}: it drafts for another model; name a draft of this one",
        key, value, of_model));
  };
  if (config.hidden_size != target.hidden_size) {
    return differs("hidden_size", config.hidden_size, target.hidden_size);
  }
  if (config.vocab_size != target.vocab_size) {
    return differs("vocab_size", config.vocab_size, target.vocab_size);
  }
  return {};
}

}  // namespace

Result<ModelConfig> load_draft_config(const std::filesystem::path& folder,
                                      const checkpoint::FamilyReader& family,
                                      const ModelConfig& target) {
  HEDDLE_RETURN_IF_ERROR(checkpoint::check_safetensors_folder(folder, "a network that drafts"));
  const std::filesystem::path path = folder / "config.json";
  HEDDLE_ASSIGN_OR_RETURN(const std::string text,
                          checkpoint::read_text_file(path, checkpoint::kMaxConfigBytes));
  Result<ModelConfig> config = checkpoint::parse_model_config(text, family);
  if (!config.ok()) return config.status().with_context(path.string());
  const Status fits = check_fits(*config, target);
  if (!fits.ok()) return fits.with_context(path.string());
  return config;
}

void require_one_layer(checkpoint::ConfigReader& reader, const ModelConfig& config) {
  if (config.num_layers != 1) reader.refuse("num_hidden_layers", "one layer is served");
}

}  // namespace heddle::models

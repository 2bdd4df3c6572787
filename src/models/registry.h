// SPDX-License-Identifier: Apache-2.0
// The families this build serves, and the way from a config.json, or from the metadata of a GGUF
// file, to a model.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "models/drafts/draft_model.h"
#include "models/model.h"

namespace heddle::models {

class VisionTower;  // vision/vision_tower.h

// In order of name.
const std::vector<Family>& families();

// Reads a config.json as the family it names reads it. Error: kUnimplemented for an architecture
// that no family builds, listing those that are; otherwise as checkpoint::parse_model_config.
Result<checkpoint::ModelConfig> parse_config(std::string_view json_text);

// Reads <folder>/config.json, and the quantisation that older tools write beside it; where
// checkpoint::find_gguf() finds one, the metadata of a GGUF file as that. Errors begin with the
// file's name. Error: kUnimplemented for a GGUF architecture that no family serves, listing those
// that are.
Result<checkpoint::ModelConfig> load_config(const std::filesystem::path& folder);

// The stored weights of a model: of a folder's safetensors files or of a GGUF file, by hub names.
// Error: as checkpoint::CheckpointFiles::open() or as load_config() and
// checkpoint::GgufWeights::create().
Result<std::unique_ptr<const checkpoint::WeightSource>> open_weights(
    const std::filesystem::path& folder);

// `config` is what parse_config() or load_config() gave.
std::unique_ptr<const Model> create_model(const checkpoint::ModelConfig& config);

// The vision tower of a config.json that parse_config() takes. Error: kNotFound without a
// vision_config; kUnimplemented, naming the architecture, where no tower of the family is served;
// otherwise those of its reader (vision/vision_config.h), and kInvalidArgument where its features
// are not as wide as the language model.
Result<std::unique_ptr<const VisionTower>> parse_vision_tower(std::string_view json_text);

// Reads <folder>/config.json. Errors begin with the file's name.
Result<std::unique_ptr<const VisionTower>> load_vision_tower(const std::filesystem::path& folder);

// Family::tool_call_format of the family that builds `architecture`; empty where none does.
[[nodiscard]] std::string_view tool_call_format_of(std::string_view architecture);

// The prediction head of its checkpoints. Error: kUnimplemented where the family has none that is
// served, kInvalidArgument where the configuration names none.
Result<std::unique_ptr<const DraftModel>> create_prediction_head(
    const checkpoint::ModelConfig& config);

}  // namespace heddle::models

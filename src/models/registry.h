// SPDX-License-Identifier: Apache-2.0
// The model families in this build, and the functions that make a model from a config.json or from
// the metadata of a GGUF file.
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

// Reads a config.json with the family that it names. Error: kUnimplemented for an architecture of
// no family, listing the supported ones; otherwise as checkpoint::parse_model_config().
Result<checkpoint::ModelConfig> parse_config(std::string_view json_text);

// Reads <folder>/config.json, and the quantisation that older tools write next to it. If
// checkpoint::find_gguf() finds a GGUF file, reads its metadata instead. Errors begin with the
// file's name. Error: kUnimplemented for a GGUF architecture of no family, listing the supported
// ones.
Result<checkpoint::ModelConfig> load_config(const std::filesystem::path& folder);

// Opens the stored weights of a model under their hub names, from a folder's safetensors files or
// from a GGUF file. Error: as checkpoint::CheckpointFiles::open(), or as load_config() and
// checkpoint::GgufWeights::create().
Result<std::unique_ptr<const checkpoint::WeightSource>> open_weights(
    const std::filesystem::path& folder);

// Creates the model. `config` must come from parse_config() or load_config().
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

// Creates the prediction head of a checkpoint. Error: kUnimplemented if the family's heads are not
// supported, kInvalidArgument if the configuration has none.
Result<std::unique_ptr<const DraftModel>> create_prediction_head(
    const checkpoint::ModelConfig& config);

}  // namespace heddle::models

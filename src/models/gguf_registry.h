// SPDX-License-Identifier: Apache-2.0
// The way from a GGUF file to the family that its architecture belongs to, and what the file says
// in the hub's words.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <heddle/status.h>

#include "checkpoint/model_config.h"
#include "checkpoint/weight_source.h"

namespace heddle::models {

// All of these take the first file of a model, as checkpoint::find_gguf() gives it. Error: as
// checkpoint::GgufModel::open(); kUnimplemented for an architecture that no family serves, listing
// those that are, and for metadata that changes what a model computes and is not served.

// The metadata as parse_config() reads it.
Result<checkpoint::ModelConfig> load_gguf_config(const std::filesystem::path& path);

// The text of the config.json that the model has in the hub.
Result<std::string> gguf_config_text(const std::filesystem::path& path);

// The stored weights by hub names. Error: also as checkpoint::GgufWeights::create().
Result<std::unique_ptr<const checkpoint::WeightSource>> open_gguf_weights(
    const std::filesystem::path& path);

}  // namespace heddle::models

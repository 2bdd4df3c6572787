// SPDX-License-Identifier: Apache-2.0
// Finds the family of a GGUF file's architecture, and translates the file's metadata to the hub's
// keys.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <heddle/status.h>

#include "checkpoint/model_config.h"
#include "checkpoint/weight_source.h"

namespace heddle::models {

// The argument of these functions is the first file of a model, as checkpoint::find_gguf() returns
// it. Error: as checkpoint::GgufModel::open(); kUnimplemented for an unsupported architecture,
// listing the supported ones, and for unsupported metadata that changes the computation.

// Reads the metadata as a checked configuration, as parse_config() does for a config.json.
Result<checkpoint::ModelConfig> load_gguf_config(const std::filesystem::path& path);

// The metadata as the text of the config.json that the model has in the hub.
Result<std::string> gguf_config_text(const std::filesystem::path& path);

// Opens the stored weights under their hub names. Error: also as checkpoint::GgufWeights::create().
Result<std::unique_ptr<const checkpoint::WeightSource>> open_gguf_weights(
    const std::filesystem::path& path);

}  // namespace heddle::models

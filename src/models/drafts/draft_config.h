// SPDX-License-Identifier: Apache-2.0
// load_draft_config: the configuration of a network that drafts for a model, out of its own folder,
// held against the model's.
#pragma once

#include <filesystem>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

// Reads <folder>/config.json. Error: as load_config(); kInvalidArgument for a network of another
// model, naming what differs.
Result<checkpoint::ModelConfig> load_draft_config(const std::filesystem::path& folder,
                                                  const checkpoint::FamilyReader& family,
                                                  const checkpoint::ModelConfig& target);

// For families whose networks have one layer.
void require_one_layer(checkpoint::ConfigReader& reader, const checkpoint::ModelConfig& config);

}  // namespace heddle::models

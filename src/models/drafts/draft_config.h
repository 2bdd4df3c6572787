// SPDX-License-Identifier: Apache-2.0
// load_draft_config: reads the configuration of a draft network from the network's own folder and
// compares it with the configuration of the target model.
#pragma once

#include <filesystem>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

// Reads <folder>/config.json. Error: as load_config(); kInvalidArgument, naming what differs, if
// the network was made for another model.
Result<checkpoint::ModelConfig> load_draft_config(const std::filesystem::path& folder,
                                                  const checkpoint::FamilyReader& family,
                                                  const checkpoint::ModelConfig& target);

// Refuses more than one layer, for families of networks that have exactly one.
void require_one_layer(checkpoint::ConfigReader& reader, const checkpoint::ModelConfig& config);

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// A family: architectures that one folder of this directory builds. The folder defines a function
// with its own name that returns its Family; registry.cpp lists it (docs/adding-a-model.md).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "models/model.h"

namespace heddle::models {

struct Family {
  std::string_view name;                        // for messages
  std::vector<std::string_view> architectures;  // as config.json says under "architectures"

  // Reads the keys that the family spells in its own way, leaves to a default of its own or serves
  // beyond what all do, and refuses what it does not serve (checkpoint::FamilyReader).
  void (*read_config)(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config);

  // The model of a configuration that was read so: its weight map, its graph and its cache needs
  // (rows per token, windows, states).
  std::unique_ptr<const Model> (*create)(const checkpoint::ModelConfig& config);
};

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// The options that name LoRA adapters, and loading what they name. The value of such an option is
// NAME=FOLDER, FOLDER, or a JSON object with "name" and "path", as other servers take them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/engine.h>
#include <heddle/status.h>

#include "tools/cli/options.h"

namespace heddle::tools {

struct AdapterArgument {
  std::string name;  // without one in the text, the last part of the folder's path
  std::filesystem::path folder;
};

// Error: kInvalidArgument, with the text, if it has no folder or is no such object.
[[nodiscard]] Result<AdapterArgument> parse_adapter(std::string_view text);

// Declares --lora: one adapter, for all requests of the command. `adapters` gets at most one text.
void declare_adapter(Options& options, std::vector<std::string>& adapters);

// Reserves memory for these adapters in `engine`. Error: those of parse_adapter() and
// AdapterFiles::open(); kInvalidArgument for two of one name.
[[nodiscard]] Status apply_adapters(const std::vector<std::string>& adapters,
                                    EngineOptions& engine);

struct LoadedAdapter {
  AdapterArgument argument;
  std::shared_ptr<const Adapter> adapter;
};

// Loads the adapters in their order. Error: that of Engine::load_adapter().
[[nodiscard]] Result<std::vector<LoadedAdapter>> load_adapters(
    const std::vector<std::string>& adapters, Engine& engine);

}  // namespace heddle::tools

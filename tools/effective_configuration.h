// SPDX-License-Identifier: Apache-2.0
// The configuration of a server after applying all defaults and limits of the machine, for its log
// and for /get_server_info.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <heddle/engine.h>

#include "tools/cli/options_serve.h"

namespace heddle::tools {

// An object with every option of `heddle serve` by its name, with '_' for '-', and properties of
// the model. API keys are "***". `settings` have been applied (options_serve.h).
[[nodiscard]] nlohmann::ordered_json effective_configuration(const ServeSettings& settings,
                                                             const Engine& engine);

// The configuration without secrets, for clients: the API keys and the seed are removed.
[[nodiscard]] nlohmann::ordered_json without_secrets(nlohmann::ordered_json configuration);

}  // namespace heddle::tools

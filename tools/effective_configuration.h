// SPDX-License-Identifier: Apache-2.0
// The configuration of a server, after every default and every limit of the machine: for its log
// and for /get_server_info.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <heddle/engine.h>

#include "tools/cli/options_serve.h"

namespace heddle::tools {

// An object: every option of `heddle serve` by its name, with '_' for '-', and what the model says
// of itself. API keys are "***". `settings` were applied.
[[nodiscard]] nlohmann::ordered_json effective_configuration(const ServeSettings& settings,
                                                             const Engine& engine);

// The configuration as clients may see it: without the secrets, the key and the seed.
[[nodiscard]] nlohmann::ordered_json without_secrets(nlohmann::ordered_json configuration);

}  // namespace heddle::tools

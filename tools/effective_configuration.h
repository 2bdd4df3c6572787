// SPDX-License-Identifier: Apache-2.0
// What a server runs with, after every default and every limit of the machine: for its log and for
// /get_server_info.
#pragma once

#include <string>

#include <heddle/engine.h>

#include "options_serve.h"
#include "server/effective_option.h"

namespace heddle::tools {

// A JSON object on one line: every option of `heddle serve` by its name, with '_' for '-', and what
// the model says of itself. API keys are "***". `settings` were applied.
[[nodiscard]] std::string effective_configuration(const ServeSettings& settings,
                                                  const Engine& engine);

// The same for clients, without what is empty, a list, or nobody's business (keys, the seed).
[[nodiscard]] server::EffectiveOptions effective_options(const ServeSettings& settings,
                                                         const Engine& engine);

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
// What a server runs with, after every default and every limit of the machine: for its log and for
// /get_server_info.
#pragma once

#include <string>

#include <heddle/engine.h>
#include <heddle/options.h>

#include "server/effective_option.h"

namespace heddle::tools {

[[nodiscard]] server::EffectiveOptions effective_options(const EngineOptions& options,
                                                         const Engine& engine);

// "configuration: model=... dtype=float32 ...".
[[nodiscard]] std::string log_line(const server::EffectiveOptions& options);

}  // namespace heddle::tools

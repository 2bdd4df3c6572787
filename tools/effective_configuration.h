// SPDX-License-Identifier: Apache-2.0
// One line that says what a server runs with, after every default and every limit of the machine.
#pragma once

#include <string>

#include <heddle/engine.h>
#include <heddle/options.h>

namespace heddle::tools {

// "configuration: model=... dtype=float32 ...": key=value, without secrets.
[[nodiscard]] std::string effective_configuration(const EngineOptions& options,
                                                  const Engine& engine);

}  // namespace heddle::tools

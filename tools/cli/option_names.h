// SPDX-License-Identifier: Apache-2.0
// Replaces the names of engine fields (heddle/options.h) in errors by those of the options.
//
// Threading: free functions without state.
#pragma once

#include <memory>
#include <string>

#include <heddle/engine.h>

namespace heddle::tools {

// Replaces names in a message: "snapshot_interval is 65" becomes "--snapshot-interval is 65".
[[nodiscard]] std::string with_option_names(std::string message);

// Engine::create(), with option names in its errors.
Result<std::unique_ptr<Engine>> create_engine(const EngineOptions& options);

}  // namespace heddle::tools

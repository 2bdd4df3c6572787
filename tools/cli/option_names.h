// SPDX-License-Identifier: Apache-2.0
// The engine's errors name its fields (heddle/options.h); on the command line these are options.
//
// Threading: free functions without state.
#pragma once

#include <memory>
#include <string>

#include <heddle/engine.h>

namespace heddle::tools {

// "snapshot_interval is 65" becomes "--snapshot-interval is 65".
[[nodiscard]] std::string with_option_names(std::string message);

// Engine::create(), with errors that name options.
Result<std::unique_ptr<Engine>> create_engine(const EngineOptions& options);

}  // namespace heddle::tools

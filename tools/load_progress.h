// SPDX-License-Identifier: Apache-2.0
// The bar that shows how far a model has loaded, on a terminal, once loading takes over a second.
#pragma once

#include <cstdint>
#include <functional>

namespace heddle::tools {

// For EngineOptions::on_load_progress and its kin. Threading: calls come from one thread.
std::function<void(int64_t done_bytes, int64_t total_bytes)> load_progress_bar();

}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
// How far a load has come. Drawing a bar is the business of tools/.
#pragma once

#include <cstdint>
#include <functional>

namespace heddle::checkpoint {

// Called on the thread that called load_weights(), many times, the last time with done == total.
using ProgressCallback = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

}  // namespace heddle::checkpoint

// SPDX-License-Identifier: Apache-2.0
// Sizes of weights and states in the unit that reports print.
#pragma once

#include <cstdint>

namespace heddle::tools {

constexpr double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

}  // namespace heddle::tools

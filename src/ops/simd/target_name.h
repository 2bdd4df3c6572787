// SPDX-License-Identifier: Apache-2.0
// Which instruction set the kernels of this process run on, for people to read.
#pragma once

#include <string_view>

namespace heddle::ops {

std::string_view simd_target_name();  // "AVX3", "AVX2", ...

}  // namespace heddle::ops

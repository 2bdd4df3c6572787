// SPDX-License-Identifier: Apache-2.0
// Adapter: a LoRA adapter in an engine's memory, which requests may name.
//
// Threading: immutable, shared. When the last pointer to an adapter is released, the engine may use
//            its memory for another one.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

struct Adapter {
  int32_t slot = 0;          // the engine's memory that the adapter is in
  int64_t rank = 0;          // highest rank of its modules
  std::string content_hash;  // equal hashes: both change the model alike
};

}  // namespace heddle

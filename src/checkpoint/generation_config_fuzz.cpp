// SPDX-License-Identifier: Apache-2.0
// Any text as generation_config.json.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "checkpoint/generation_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)heddle::checkpoint::parse_generation_config(text).ok();
  return 0;
}

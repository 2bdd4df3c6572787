// SPDX-License-Identifier: Apache-2.0
// Any text as JSON: what strict_json() makes of it, other parsers take, and it is left as it is the
// second time.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "core/json_reader.h"
#include "core/json_syntax.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const heddle::Result<std::string> strict = heddle::strict_json(text);
  const heddle::Result<heddle::JsonDocument> document = heddle::JsonDocument::parse(text);
  HEDDLE_CHECK(document.ok() || !strict.ok());
  if (!strict.ok()) return 0;
  const heddle::Result<std::string> again = heddle::strict_json(*strict);
  HEDDLE_CHECK(again.ok() && *again == *strict);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as a tokenizer.json; a file that loads must encode and decode without a
// crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/testing/fuzz_fixture.h"
#include "tokenizer/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::tokenizer;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = parse_tokenizer_json(json, {});
  if (!tokenizer.ok()) return tokenizer.status().message().empty() ? __builtin_trap(), 0 : 0;
  testing::encode_and_decode(**tokenizer, json);  // the file is sure to contain its own tokens
  return 0;
}

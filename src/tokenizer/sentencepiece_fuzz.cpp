// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as a tokenizer.model; a model that loads must encode and decode without a
// crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/testing/fuzz_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::tokenizer;
  const std::string_view model(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = parse_sentencepiece(model, {});
  if (!tokenizer.ok()) return tokenizer.status().message().empty() ? __builtin_trap(), 0 : 0;
  testing::encode_and_decode(**tokenizer, "The red frog </s>  é中😀\u2581\n\t0");
  testing::encode_and_decode(**tokenizer, model);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as a tokenizer.json; a file that loads must encode and decode without a
// crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::tokenizer;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = parse_tokenizer_json(json, {});
  if (!tokenizer.ok()) return tokenizer.status().message().empty() ? __builtin_trap(), 0 : 0;
  // The file is also a text: it is sure to contain its own tokens.
  const auto ids = (*tokenizer)->encode(json);
  if (!ids.ok()) return 0;
  const std::string decoded = (*tokenizer)->decode(*ids, false);
  IncrementalDetokenizer detokenizer(**tokenizer, {.skip_special_tokens = false});
  std::string streamed;
  for (const heddle::TokenId id : *ids) streamed += detokenizer.push(id);
  streamed += detokenizer.finish();
  if (streamed != decoded || !is_valid_utf8(decoded)) __builtin_trap();
  return 0;
}

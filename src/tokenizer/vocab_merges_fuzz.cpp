// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as vocab.json, merges.txt, added_tokens.json and tokenizer_config.json, zero
// bytes between them; files that load must encode and decode without a crash.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "tokenizer/testing/fuzz_fixture.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/vocab_merges.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::tokenizer;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  std::string_view rest = all;
  std::array<std::string_view, 4> files;
  for (std::string_view& file : files) {
    file = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(file.size() + 1, rest.size()));
  }
  auto config = parse_tokenizer_config(files[3]);
  if (!config.ok() && config.status().message().empty()) __builtin_trap();
  TokenizerConfig joined = config.ok() ? std::move(config).value() : TokenizerConfig();
  const heddle::Status added = join_added_tokens(files[2], joined);
  if (!added.ok() && added.message().empty()) __builtin_trap();
  const auto tokenizer = parse_vocab_merges(files[0], files[1], std::move(joined));
  if (!tokenizer.ok()) return tokenizer.status().message().empty() ? __builtin_trap(), 0 : 0;
  testing::encode_and_decode(**tokenizer, all);
  return 0;
}

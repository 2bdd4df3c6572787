// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as tokenizer_config.json and tiktoken.model, a zero byte between them; the
// latter also after the tokens of all bytes, without which none loads. Files that load must encode
// and decode without a crash.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tokenizer/testing/fuzz_fixture.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/tokenizer_config.h"

namespace {

std::string lines_of_all_bytes() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string lines;
  for (size_t byte = 0; byte < 256; ++byte) {
    lines += kDigits[byte >> 2];
    lines += kDigits[(byte & 3) << 4];
    lines += "== " + std::to_string(byte) + "\n";
  }
  return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::tokenizer;
  static const std::string bytes = lines_of_all_bytes();
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(all.find('\0'), all.size());
  const std::string_view ranks = all.substr(std::min(end + 1, all.size()));
  const auto parsed = parse_tokenizer_config(all.substr(0, end));
  const TokenizerConfig config = parsed.ok() ? *parsed : TokenizerConfig();
  for (const std::string& text : {std::string(ranks), bytes + std::string(ranks)}) {
    const auto tokenizer = parse_tiktoken(text, config);
    if (tokenizer.ok()) {
      testing::encode_and_decode(**tokenizer, all);
    } else if (tokenizer.status().message().empty()) {
      __builtin_trap();
    }
  }
  return 0;
}

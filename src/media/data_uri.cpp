// SPDX-License-Identifier: Apache-2.0
#include "media/data_uri.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

namespace heddle::media {

namespace {

constexpr int8_t kBlank = -1, kPadding = -2, kNoSymbol = -3;

constexpr std::array<int8_t, 256> make_symbols() {
  std::array<int8_t, 256> symbols{};
  symbols.fill(kNoSymbol);
  for (const char c : std::string_view(" \t\r\n\f")) symbols[static_cast<uint8_t>(c)] = kBlank;
  symbols['='] = kPadding;
  for (const std::string_view last : {"+/", "-_"}) {
    int8_t value = 0;
    for (char c = 'A'; c <= 'Z'; ++c) symbols[static_cast<uint8_t>(c)] = value++;
    for (char c = 'a'; c <= 'z'; ++c) symbols[static_cast<uint8_t>(c)] = value++;
    for (char c = '0'; c <= '9'; ++c) symbols[static_cast<uint8_t>(c)] = value++;
    for (const char c : last) symbols[static_cast<uint8_t>(c)] = value++;
  }
  return symbols;
}

constexpr std::array<int8_t, 256> kSymbols = make_symbols();

MediaError broken_base64(std::string_view complaint) {
  return {MediaFault::kBase64Invalid,
          fmt::format("the picture's base64 is broken: {}; encode the file again", complaint)};
}

bool equal_letters(std::string_view text, std::string_view lower) {
  return std::ranges::equal(
      text, lower, [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
}

}  // namespace

MediaResult<std::vector<uint8_t>> decode_base64(std::string_view text, const MediaLimits& limits) {
  size_t num_symbols = 0, num_padding = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int8_t symbol = kSymbols[static_cast<uint8_t>(text[i])];
    if (symbol == kNoSymbol || (symbol >= 0 && num_padding > 0)) {
      return broken_base64(
          fmt::format("character {} of {} does not belong there", i + 1, text.size()));
    }
    num_symbols += symbol >= 0 ? 1 : 0;
    num_padding += symbol == kPadding ? 1 : 0;
  }
  if (num_symbols % 4 == 1 || (num_padding > 0 && (num_symbols + num_padding) % 4 != 0) ||
      num_padding > 2) {
    return broken_base64(fmt::format("{} symbols and {} signs of padding are no whole bytes",
                                     num_symbols, num_padding));
  }
  const size_t num_bytes = num_symbols / 4 * 3 + num_symbols % 4 * 3 / 4;
  const auto within = check_file_bytes(static_cast<int64_t>(num_bytes), limits);
  if (!within.ok()) return within.error();
  std::vector<uint8_t> bytes;
  bytes.reserve(num_bytes);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int8_t symbol = kSymbols[static_cast<uint8_t>(c)];
    if (symbol < 0) continue;
    bits = (bits << 6) | static_cast<uint32_t>(symbol);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> num_bits));
  }
  return bytes;
}

MediaResult<DataUri> read_data_uri(std::string_view url, const MediaLimits& limits) {
  constexpr size_t kMostHeadBytes = 1024;
  const auto invalid = [](std::string_view complaint) {
    return MediaError{MediaFault::kUrlInvalid,
                      fmt::format("{}; send data:image/png;base64,... instead", complaint)};
  };
  if (!equal_letters(url.substr(0, 5), "data:")) {
    return invalid("the picture's address is not a data URI");
  }
  url.remove_prefix(5);
  const size_t comma = url.substr(0, kMostHeadBytes).find(',');
  if (comma == std::string_view::npos) return invalid("the data URI has no comma before its data");
  const std::string_view head = url.substr(0, comma);
  const std::string_view data = url.substr(comma + 1);
  const size_t last = head.rfind(';');
  if (last == std::string_view::npos || !equal_letters(head.substr(last + 1), "base64")) {
    return invalid("the data URI is not base64");
  }
  if (data.find('%') != std::string_view::npos) {
    return invalid("the data URI's base64 is percent-encoded");
  }
  auto bytes = decode_base64(data, limits);
  if (!bytes.ok()) return bytes.error();
  return DataUri{.type = std::string(head.substr(0, head.find(';'))), .bytes = std::move(*bytes)};
}

}  // namespace heddle::media

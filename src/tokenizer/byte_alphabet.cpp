// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

constexpr int kNumBytes = 256;
constexpr int kNumCodePoints = 256 + 68;

struct Alphabet {
  std::array<char16_t, kNumBytes> code_point_of_byte{};
  std::array<int16_t, kNumCodePoints> byte_of_code_point{};  // -1: not of the alphabet
};

constexpr bool spells_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte_of_code_point.fill(-1);
  int next = kNumBytes;
  for (int byte = 0; byte < kNumBytes; ++byte) {
    const int code_point = spells_itself(byte) ? byte : next++;
    alphabet.code_point_of_byte[static_cast<size_t>(byte)] = static_cast<char16_t>(code_point);
    alphabet.byte_of_code_point[static_cast<size_t>(code_point)] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

bool append_bytes_of_spelling(std::string_view spelling, std::string& bytes) {
  const size_t start = bytes.size();
  bytes.append(spelling);  // room, and most letters are right already
  char* out = bytes.data() + start;
  for (size_t i = 0; i < spelling.size(); ++i) {
    size_t code_point = static_cast<unsigned char>(spelling[i]);
    if (code_point >= 0x80) {
      // All other characters of the alphabet have two bytes.
      const auto second =
          i + 1 < spelling.size() ? static_cast<unsigned char>(spelling[i + 1]) : 0u;
      const bool is_pair = (code_point & 0xE0) == 0xC0 && (second & 0xC0) == 0x80;
      code_point = is_pair ? (code_point & 0x1F) << 6 | (second & 0x3F) : kNumCodePoints;
      ++i;
    }
    if (code_point >= kNumCodePoints || kAlphabet.byte_of_code_point[code_point] < 0) {
      bytes.resize(start);
      return false;
    }
    *out++ = static_cast<char>(kAlphabet.byte_of_code_point[code_point]);
  }
  bytes.resize(static_cast<size_t>(out - bytes.data()));
  return true;
}

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    append_utf8(kAlphabet.code_point_of_byte[static_cast<unsigned char>(byte)], spelling);
  }
  return spelling;
}

}  // namespace heddle::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "support/test_data.h"

namespace heddle::tokenizer {
namespace {

TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  // The Unicode Standard, section 3.9, tables 3-8 to 3-11.
  EXPECT_EQ(replace_ill_formed_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "��������A");
  EXPECT_EQ(replace_ill_formed_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "��������A");
  EXPECT_EQ(replace_ill_formed_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "�����A��B");
  EXPECT_EQ(replace_ill_formed_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "����A");
}

TEST(Utf8, LeavesWellFormedTextAlone) {
  const std::string text("a\0é€😀\xEF\xBF\xBD", 14);
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_EQ(replace_ill_formed_utf8(text), text);
}

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string bytes;
    append_utf8(code_point, bytes);
    const Utf8Unit unit = decode_utf8(bytes);
    ASSERT_EQ(unit.kind, Utf8Unit::Kind::kCodePoint);
    ASSERT_EQ(unit.code_point, code_point);
    ASSERT_EQ(unit.length, bytes.size());
    ASSERT_EQ(utf8_length(bytes[0]), bytes.size());
  }
}

TEST(Utf8, HoldsBackOnlyTheBeginningOfACharacter) {
  std::string out;
  EXPECT_EQ(append_decided_utf8("ab\xF0\x9F\x98", out), 2u);
  EXPECT_EQ(out, "ab");
  out.clear();
  EXPECT_EQ(append_decided_utf8("\xF0\x9F\x41", out), 3u);  // the third byte decides
  EXPECT_EQ(out, "�A");
}

// Random bytes, fed in random portions, come out as if fed at once.
TEST(Utf8, DoesNotDependOnWhereTheBytesAreCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 40; ++i) bytes.push_back(static_cast<char>(random() % 3 ? random() : 0xF0));
    std::string text;
    std::string pending;
    for (const char byte : bytes) {
      pending.push_back(byte);
      pending.erase(0, append_decided_utf8(pending, text));
      ASSERT_LE(pending.size(), 3u);
    }
    if (!pending.empty()) text.append(kReplacementCharacter);
    ASSERT_EQ(text, replace_ill_formed_utf8(bytes));
    ASSERT_TRUE(is_valid_utf8(text));
  }
}

std::string unhex(std::string_view hex) {
  std::string bytes;
  std::string digits;
  for (const char c : hex) {
    if (c != ' ') digits.push_back(c);
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(Utf8, AgreesWithTheUtf8TestsCollection) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/utf8/utf8tests.txt");
  std::ifstream file(path);
  int num_tests = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t kind = line.find(":invalid hex:");
    if (line.starts_with('#') || kind == std::string::npos) continue;
    const size_t input = kind + std::string_view(":invalid hex:").size();
    const size_t skipped = line.find(':', input);
    const size_t replaced = line.find(':', skipped + 1);
    ASSERT_NE(replaced, std::string::npos) << line;
    EXPECT_EQ(replace_ill_formed_utf8(unhex(line.substr(input, skipped - input))),
              unhex(line.substr(replaced + 1)))
        << line;
    ++num_tests;
  }
  EXPECT_GT(num_tests, 50);
}

}  // namespace
}  // namespace heddle::tokenizer

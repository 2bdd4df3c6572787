// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normal_form.h"

#include <array>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <utf8proc.h>

#include "support/test_data.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

TEST(NormalForm, ComposesAndDecomposes) {
  EXPECT_EQ(to_normal_form("e\u0301", NormalForm::kNfc), "é");
  EXPECT_EQ(to_normal_form("é", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(to_normal_form("ﬁ", NormalForm::kNfc), "ﬁ");
  EXPECT_EQ(to_normal_form("ﬁ①", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(to_normal_form("각", NormalForm::kNfkd), "\u1100\u1161\u11A8");
  EXPECT_EQ(to_normal_form(std::string("a\0e\u0301", 5), NormalForm::kNfc), std::string("a\0é", 4));
  EXPECT_EQ(to_normal_form("", NormalForm::kNfc), "");
}

// The quick answer is right if no inert character is changed by NFC, reordered (combining class),
// or taken up by the character before it.
TEST(NormalForm, InertCharactersAreInert) {
  int num_inert = 0;
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (!is_inert_under_nfc(code_point)) continue;
    ++num_inert;
    const utf8proc_property_t* property =
        utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
    ASSERT_EQ(property->combining_class, 0) << std::hex << static_cast<uint32_t>(code_point);
    std::array<utf8proc_int32_t, 8> decomposed{};
    int boundary = 0;
    utf8proc_ssize_t length = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(code_point), decomposed.data(), decomposed.size(),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    length = utf8proc_normalize_utf32(
        decomposed.data(), length,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    ASSERT_EQ(length, 1) << std::hex << static_cast<uint32_t>(code_point);
    ASSERT_EQ(static_cast<char32_t>(decomposed[0]), code_point);
    const bool is_second_of_a_pair =
        property->comb_index != UINT16_MAX && (property->comb_index & 0x8000) != 0;
    ASSERT_FALSE(is_second_of_a_pair) << std::hex << static_cast<uint32_t>(code_point);
  }
  EXPECT_GT(num_inert, 90000);
}

std::string text_of(const std::string& field) {
  std::istringstream numbers(field);
  std::string text;
  for (uint32_t code_point = 0; numbers >> std::hex >> code_point;) append_utf8(code_point, text);
  return text;
}

TEST(NormalForm, PassesTheNormalizationTestOfUnicode) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/utf8/NormalizationTest.txt");
  std::ifstream file(path);
  int num_lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#' || line[0] == '@') continue;
    std::array<std::string, 5> c;
    std::istringstream fields(line);
    for (std::string& text : c) {
      std::string field;
      std::getline(fields, field, ';');
      text = text_of(field);
    }
    SCOPED_TRACE(line);
    for (size_t i = 0; i < 5; ++i) {
      const bool canonical = i < 3;
      ASSERT_EQ(to_normal_form(c[i], NormalForm::kNfc), canonical ? c[1] : c[3]);
      ASSERT_EQ(to_normal_form(c[i], NormalForm::kNfd), canonical ? c[2] : c[4]);
      ASSERT_EQ(to_normal_form(c[i], NormalForm::kNfkc), c[3]);
      ASSERT_EQ(to_normal_form(c[i], NormalForm::kNfkd), c[4]);
    }
    ++num_lines;
  }
  EXPECT_GT(num_lines, 18000);
}

}  // namespace
}  // namespace heddle::tokenizer

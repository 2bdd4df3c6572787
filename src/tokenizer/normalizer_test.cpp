// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <array>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>
#include <utf8proc.h>

#include "core/compiler.h"
#include "support/test_data.h"
#include "tokenizer/testing/tokenizer_fixture.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

using testing::repeat;

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

constexpr std::array kForms = {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc,
                               NormalForm::kNfkd};

// utf8proc's own answer for a whole text; quadratic in the length of a run of marks.
std::string normal_form_of_utf8proc(std::string_view text, NormalForm form) {
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  int options = UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &raw, static_cast<utf8proc_option_t>(options));
  EXPECT_GE(length, 0);
  const std::string result(reinterpret_cast<const char*>(raw), static_cast<size_t>(length));
  std::free(raw);
  return result;
}

// Letters, marks of all classes, Hangul, compatibility characters, seconds of pairs that are no
// marks; sometimes any character, sometimes the same kind many times.
std::string random_text(std::mt19937& random) {
  constexpr std::array<std::pair<char32_t, char32_t>, 12> kKinds = {{{'a', 'z'},
                                                                     {0x00C0, 0x017F},
                                                                     {0x0300, 0x036F},
                                                                     {0x0591, 0x05BD},
                                                                     {0x0F71, 0x0F84},
                                                                     {0x1100, 0x11FF},
                                                                     {0xAC00, 0xACFF},
                                                                     {0x09BE, 0x09D7},
                                                                     {0xFB00, 0xFB4F},
                                                                     {0x1D157, 0x1D172},
                                                                     {0xFDF0, 0xFDFC},
                                                                     {0x1E00, 0x1EFF}}};
  std::string text;
  for (auto num_runs = 1 + random() % 8; num_runs > 0; --num_runs) {
    std::pair<char32_t, char32_t> kind = kKinds[random() % kKinds.size()];
    if (random() % 8 == 0) kind = {0, 0xD7FF};
    for (auto count = random() % 16 == 0 ? random() % 3000 : random() % 6; count > 0; --count) {
      append_utf8(kind.first + static_cast<char32_t>(random()) % (kind.second - kind.first + 1),
                  text);
    }
  }
  return text;
}

TEST(NormalForm, EqualsUtf8procForRandomTexts) {
  std::mt19937 random(15);
  const int num_rounds = HEDDLE_SANITIZED ? 60 : 400;
  for (int round = 0; round < num_rounds; ++round) {
    const std::string text = random_text(random);
    for (const NormalForm form : kForms) {
      ASSERT_EQ(to_normal_form(text, form), normal_form_of_utf8proc(text, form))
          << "round " << round << ", form " << static_cast<int>(form);
    }
  }
}

// Takes a fraction of a second; sorting the marks in quadratic time would take an hour.
TEST(NormalForm, SortsAMillionMarks) {
  constexpr size_t kPairs = HEDDLE_SANITIZED ? 1 << 17 : 1 << 20;
  // Below goes before above: classes 220 and 230. The first acute accent joins the letter.
  EXPECT_EQ(to_normal_form("a" + repeat("\u0301\u0316", kPairs), NormalForm::kNfc),
            "á" + repeat("\u0316", kPairs) + repeat("\u0301", kPairs - 1));
  EXPECT_EQ(to_normal_form(repeat("\u0F73", kPairs), NormalForm::kNfd),
            repeat("\u0F71", kPairs) + repeat("\u0F72", kPairs));
}

TEST(NormalForm, ShowsTheResultInParts) {
  const std::string text = repeat("e\u0301 plain ", 10'000) + "o\u0308";
  std::string shown;
  std::string result = "before ";
  CancellationPoll poll;
  EXPECT_TRUE(append_normal_form(text, NormalForm::kNfc, result, poll, [&](std::string_view part) {
    shown += part;
    return true;
  }));
  EXPECT_EQ(shown, normal_form_of_utf8proc(text, NormalForm::kNfc));
  EXPECT_EQ(result, "before " + shown);
}

TEST(NormalForm, EndsEarlyWhenTheRestIsNotNeeded) {
  const std::string text = repeat("e\u0301 plain ", 100'000);
  std::string result;
  CancellationPoll poll;
  int num_parts = 0;
  EXPECT_FALSE(append_normal_form(text, NormalForm::kNfc, result, poll,
                                  [&](std::string_view) { return ++num_parts < 3; }));
  EXPECT_EQ(num_parts, 3);
  EXPECT_LT(result.size(), 100'000u);
}

TEST(NormalForm, EndsEarlyWhenCancelled) {
  int num_calls = 0;
  const CancellationCheck check = [&] { return ++num_calls == 3; };
  // One run of marks gives no part before its end, and is cancelled all the same.
  for (const std::string& text : {repeat("e\u0301 plain ", 100'000), repeat("\u0301", 1'000'000)}) {
    num_calls = 0;
    CancellationPoll poll(&check);
    std::string result;
    EXPECT_FALSE(append_normal_form(text, NormalForm::kNfc, result, poll, {}));
    EXPECT_EQ(num_calls, 3);
    EXPECT_LT(result.size(), 4 * CancellationPoll::kPollBytes);
  }
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

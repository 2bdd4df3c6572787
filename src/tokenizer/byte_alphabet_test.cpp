// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_alphabet.h"

#include <set>

#include <gtest/gtest.h>

namespace heddle::tokenizer {
namespace {

TEST(ByteAlphabet, SpellsEveryByteInItsOwnWayAndBack) {
  std::set<std::string> spellings;
  for (int value = 0; value < 256; ++value) {
    const std::string byte(1, static_cast<char>(value));
    const std::string spelling = spell_bytes(byte);
    spellings.insert(spelling);
    std::string back;
    ASSERT_TRUE(append_bytes_of_spelling(spelling, back));
    EXPECT_EQ(back, byte);
  }
  EXPECT_EQ(spellings.size(), 256u);
}

TEST(ByteAlphabet, UsesTheLettersVocabularyFilesUse) {
  EXPECT_EQ(spell_bytes(" \n\t"), "ĠĊĉ");
  EXPECT_EQ(spell_bytes("é"), "Ã©");
  EXPECT_EQ(spell_bytes("az~"), "az~");
}

TEST(ByteAlphabet, RefusesWhatIsNotOfIt) {
  std::string bytes = "kept";
  for (const char* spelling : {"a b", "｜", "a▁", "\n", "ń", "😀", "\xC3", "a\xFF"}) {
    EXPECT_FALSE(append_bytes_of_spelling(spelling, bytes)) << spelling;
    EXPECT_EQ(bytes, "kept");
  }
}

}  // namespace
}  // namespace heddle::tokenizer

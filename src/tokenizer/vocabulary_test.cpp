// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocabulary.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::tokenizer {
namespace {

using ::testing::HasSubstr;

TEST(Vocabulary, FindsEveryTextAmongManyWithoutReserving) {
  Vocabulary vocabulary;
  for (int64_t id = 0; id < 20000; ++id) {
    ASSERT_TRUE(vocabulary.insert("token" + std::to_string(id * 7), id).ok());
  }
  for (TokenId id = 0; id < 20000; ++id) {
    const std::string text = "token" + std::to_string(int64_t{id} * 7);
    ASSERT_EQ(vocabulary.find(text), id);
    ASSERT_EQ(vocabulary.text(id), text);
  }
  EXPECT_EQ(vocabulary.find("token1"), std::nullopt);
  EXPECT_EQ(vocabulary.find(""), std::nullopt);
  EXPECT_EQ(vocabulary.num_tokens(), 20000);
}

TEST(Vocabulary, AnswersForIdsItLacks) {
  Vocabulary vocabulary;
  ASSERT_TRUE(vocabulary.insert("a", 5).ok());
  EXPECT_EQ(vocabulary.end_id(), 6);
  for (const TokenId id : {-1, 0, 4, 6, 1 << 30}) {
    EXPECT_FALSE(vocabulary.contains(id));
    EXPECT_EQ(vocabulary.text(id), "");
    EXPECT_FALSE(vocabulary.is_literal(id));
  }
}

TEST(Vocabulary, KeepsLiteralsApartFromMergedTexts) {
  Vocabulary vocabulary;
  ASSERT_TRUE(vocabulary.insert("中", 0).ok());
  ASSERT_TRUE(vocabulary.insert_literal("中", 1).ok());
  EXPECT_EQ(vocabulary.find("中"), 0);
  EXPECT_EQ(vocabulary.find_literal("中"), 1);
  EXPECT_TRUE(vocabulary.is_literal(1));
}

TEST(Vocabulary, RefusesDuplicatesAndIdsOutOfRange) {
  Vocabulary vocabulary;
  ASSERT_TRUE(vocabulary.insert("a", 0).ok());
  EXPECT_THAT(vocabulary.insert("a", 1).message(), HasSubstr("'a' has two ids, 0 and 1"));
  EXPECT_THAT(vocabulary.insert("b", 0).message(),
              HasSubstr("two tokens have the id 0: 'a' and 'b'"));
  EXPECT_THAT(vocabulary.insert("b", -1).message(), HasSubstr("has the id -1"));
  EXPECT_THAT(vocabulary.insert("b", int64_t{1} << 40).message(), HasSubstr("outside 0 to"));
  EXPECT_TRUE(vocabulary.insert("last", kMaxTokenId).ok());
  EXPECT_EQ(vocabulary.find("last"), kMaxTokenId);
  EXPECT_FALSE(vocabulary.insert("beyond", kMaxTokenId + 1).ok());
}

TEST(Vocabulary, ShowsTextsInMessagesWithoutControlsAndCut) {
  Vocabulary vocabulary;
  ASSERT_TRUE(vocabulary.insert("\xE4\xB8", 0).ok());
  EXPECT_THAT(vocabulary.insert("\x1b[2J", 0).message(), HasSubstr("id 0: '?\?' and '?[2J'"));
  EXPECT_THAT(vocabulary.insert("\xE4\xB8", 1).message(), HasSubstr("'?\?' has two ids"));
  EXPECT_THAT(vocabulary.insert(std::string(1000, 'a'), -1).message(),
              HasSubstr("'" + std::string(80, 'a') + "' has the id -1"));
  ASSERT_TRUE(vocabulary.insert_literal("\xC2\x9B", 2).ok());
  EXPECT_THAT(vocabulary.insert_literal("\xC2\x9B", 3).message(), HasSubstr("'?' has two ids"));
}

TEST(Vocabulary, ReservesForNoMoreTokensThanThereAreIds) {
  Vocabulary vocabulary;
  vocabulary.reserve(size_t{1} << 60, 0);
  ASSERT_TRUE(vocabulary.insert("a", 0).ok());
  EXPECT_EQ(vocabulary.find("a"), 0);
}

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

TEST(ByteAlphabet, RefusesOtherCharacters) {
  std::string bytes = "kept";
  for (const char* spelling : {"a b", "｜", "a▁", "\n", "ń", "😀", "\xC3", "a\xFF"}) {
    EXPECT_FALSE(append_bytes_of_spelling(spelling, bytes)) << spelling;
    EXPECT_EQ(bytes, "kept");
  }
}

}  // namespace

}  // namespace heddle::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detokenizer.h"

#include <random>

#include <gtest/gtest.h>

#include "tokenizer/testing/tokenizer_fixture.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

using testing::byte_fallback_json;
using testing::byte_level_json;
using testing::encode;
using testing::make;

std::string stream(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special) {
  IncrementalDetokenizer detokenizer(tokenizer, {.skip_special_tokens = skip_special});
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(part));
    text += part;
  }
  return text + detokenizer.finish();
}

// Byte tokens are the ids 0..255 here, so every character arrives byte by byte.
std::vector<TokenId> byte_tokens(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

TEST(IncrementalDetokenizer, EmitsACharacterWithItsLastByte) {
  const auto tokenizer = make(byte_level_json());
  IncrementalDetokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "😀");
  EXPECT_EQ(detokenizer.push('a'), "a");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(IncrementalDetokenizer, ReplacesAnIncompleteTailAtTheEndOnly) {
  const auto tokenizer = make(byte_level_json());
  IncrementalDetokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push(0x82), "");
  EXPECT_EQ(detokenizer.finish(), "�");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(IncrementalDetokenizer, ReplacesBrokenBytesAsSoonAsPossible) {
  const auto tokenizer = make(byte_level_json());
  IncrementalDetokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push('x'), "�x");
  EXPECT_EQ(detokenizer.push(0xFF), "�");
}

TEST(IncrementalDetokenizer, EqualsDecodeForTextSplitAtEveryByte) {
  const auto tokenizer = make(byte_level_json());
  const std::string text = "hello wörld – 日本語 😀👩‍👩‍👧 e\u0301";
  const std::vector<TokenId> ids = byte_tokens(text);
  EXPECT_EQ(stream(*tokenizer, ids, true), text);
  for (size_t length = 0; length <= ids.size(); ++length) {
    const auto prefix = std::span(ids).first(length);
    ASSERT_EQ(stream(*tokenizer, prefix, true), tokenizer->decode(prefix, true));
  }
}

TEST(IncrementalDetokenizer, EqualsDecodeForAnyIds) {
  std::mt19937 random(11);
  for (const auto& json : {byte_level_json(), byte_fallback_json()}) {
    const auto tokenizer = make(json);
    for (int round = 0; round < 3000; ++round) {
      std::vector<TokenId> ids(random() % 12);
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % 300) - 5;
      for (const bool skip : {false, true}) {
        ASSERT_EQ(stream(*tokenizer, ids, skip), tokenizer->decode(ids, skip));
      }
    }
  }
}

TEST(IncrementalDetokenizer, DropsTheFirstSpaceOfSentencePieceText) {
  const auto tokenizer = make(byte_fallback_json());
  const std::vector<TokenId> ids = encode(*tokenizer, "ab ab é");
  EXPECT_EQ(stream(*tokenizer, ids, true), "ab ab é");
  EXPECT_EQ(tokenizer->decode(ids, true), "ab ab é");
  EXPECT_EQ(stream(*tokenizer, ids, false), "<s> ab ab é");
}

TEST(IncrementalDetokenizer, KeepsTheFirstSpaceOfAContinuation) {
  const auto tokenizer = make(byte_fallback_json());
  const TokenId id = tokenizer->token_to_id("▁ab").value();
  EXPECT_EQ(IncrementalDetokenizer(*tokenizer, {.at_text_start = false}).push(id), " ab");
  EXPECT_EQ(IncrementalDetokenizer(*tokenizer).push(id), "ab");
}

TEST(IncrementalDetokenizer, PassesOverSpecialAndUnknownTokens) {
  const auto tokenizer = make(byte_level_json());
  const std::vector<TokenId> ids = {testing::kBos, testing::kHello, testing::kThink, 5000, -1,
                                    testing::kEnd};
  EXPECT_EQ(stream(*tokenizer, ids, true), "hello<think>");
  EXPECT_EQ(stream(*tokenizer, ids, false), "<|bos|>hello<think><|end|>");
}

}  // namespace
}  // namespace heddle::tokenizer

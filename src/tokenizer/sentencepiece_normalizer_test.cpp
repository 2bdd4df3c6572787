// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_normalizer.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::tokenizer {
namespace {

using namespace std::string_literals;

// A model with one piece and `spec` as its normalizer_spec.
std::string model_with(const std::string& spec) {
  return "\x0A\x03\x0A\x01z"s + "\x1A" + static_cast<char>(spec.size()) + spec;
}

const std::string kKeepsWhiteSpace = "\x20\x00"s;  // remove_extra_whitespaces: false

TEST(SentencePieceNormalizer, KeepsTextOnlyWhereNothingIsReplacedOrRemoved) {
  EXPECT_TRUE(normalizer_keeps_text(model_with(kKeepsWhiteSpace)));
  EXPECT_TRUE(normalizer_keeps_text(model_with("\x0A\x01i\x12\x00\x18\x01"s + kKeepsWhiteSpace)));
  EXPECT_TRUE(normalizer_keeps_text(model_with("\x9D\x06\x01\x02\x03\x04"s + kKeepsWhiteSpace)))
      << "an extension of four bytes";
  EXPECT_FALSE(normalizer_keeps_text(model_with("\x12\x01m"s + kKeepsWhiteSpace))) << "replaces";
  EXPECT_FALSE(normalizer_keeps_text(model_with("\x28\x00"s + kKeepsWhiteSpace))) << "unmarked";
  EXPECT_FALSE(normalizer_keeps_text(model_with("\x20\x01"s))) << "removes";
  EXPECT_FALSE(normalizer_keeps_text(model_with(""))) << "removes by default";
  EXPECT_FALSE(normalizer_keeps_text(""));
}

TEST(SentencePieceNormalizer, WhatIsNotUnderstoodMayLoseText) {
  const std::string good = model_with(kKeepsWhiteSpace);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(normalizer_keeps_text(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(normalizer_keeps_text(good + "\x0B")) << "a group";
  EXPECT_FALSE(normalizer_keeps_text(good + std::string(11, '\xFF'))) << "an endless number";
  EXPECT_FALSE(normalizer_keeps_text(model_with(kKeepsWhiteSpace + "\x12\x7F"))) << "too short";
  // The library takes a field of another type for one that it does not know.
  EXPECT_FALSE(normalizer_keeps_text(model_with("\x22\x00"s))) << "remove_extra_whitespaces";
  EXPECT_FALSE(normalizer_keeps_text(model_with(kKeepsWhiteSpace + "\x2A\x01\x01"))) << "escape";
  EXPECT_FALSE(normalizer_keeps_text(model_with(kKeepsWhiteSpace + "\x10\x00"s))) << "charsmap";
  EXPECT_FALSE(normalizer_keeps_text("\x18\x00"s)) << "normalizer_spec";
}

TEST(SentencePieceNormalizer, ReadsTheTypeOfAModel) {
  EXPECT_TRUE(is_bpe_model("\x12\x02\x18\x02"s));
  EXPECT_FALSE(is_bpe_model("\x12\x02\x18\x01"s)) << "unigram";
  EXPECT_FALSE(is_bpe_model("\x12\x04\x18\x02\x18\x01"s)) << "the last one counts";
  EXPECT_FALSE(is_bpe_model("\x12\x03\x1A\x01\x02"s)) << "of another wire type";
  EXPECT_FALSE(is_bpe_model("\x12\x02\x18"s)) << "cut off";
  EXPECT_FALSE(is_bpe_model("")) << "unigram by default";
}

}  // namespace
}  // namespace heddle::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_tokenizer.h"

#include <array>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include "core/compiler.h"
#include "core/json_reader.h"
#include "support/test_data.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/testing/tokenizer_fixture.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::encode;
using ::testing::HasSubstr;
using testing::kContent;
using testing::kPlain;

std::string tiny_model() { return testing::golden_model("tiny_sentencepiece.model"); }

std::unique_ptr<Tokenizer> make_tiny(const TokenizerConfig& config = {}) {
  auto tokenizer = parse_sentencepiece(tiny_model(), config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return std::move(tokenizer).value();
}

std::vector<std::string> spell(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> tokens;
  for (const TokenId id : ids) tokens.push_back(tokenizer.id_to_token(id));
  return tokens;
}

TEST(SentencePiece, MarksSpacesAndAddsBos) {
  const auto tokenizer = make_tiny();
  EXPECT_THAT(spell(*tokenizer, encode(*tokenizer, "The frog")),
              ElementsAre("<s>", "▁The", "▁f", "rog"));
  EXPECT_EQ(tokenizer->bos_token(), 1);
  EXPECT_EQ(tokenizer->eos_text(), "</s>");
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_EQ(tokenizer->token_to_id("▁The"), encode(*tokenizer, "The", kContent)[0]);
  EXPECT_EQ(tokenizer->token_to_id("nowhere"), std::nullopt);
}

TEST(SentencePiece, AgreesWithTheLibraryAboutTextsOfItsOwn) {
  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.LoadFromSerializedProto(tiny_model()).ok());
  const auto tokenizer = make_tiny();
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (size_t i = 0; i < 30; ++i) text.push_back("aeThfrog .  y"[random() % 13]);
    if (round % 3 == 0) text += "é中😀";
    std::vector<int> expected;
    ASSERT_TRUE(processor.Encode(text, &expected).ok());
    const auto ids = encode(*tokenizer, text, kPlain);
    ASSERT_EQ(ids, expected);
    ASSERT_EQ(tokenizer->decode(ids, true), processor.DecodeIds(expected));
    ASSERT_EQ(tokenizer->decode(ids, true), text);
  }
}

// Longer than the library gets at once: the parts give the ids of the whole.
void expect_exact_parts(const std::string& model, const std::vector<std::string_view>& parts) {
  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.LoadFromSerializedProto(model).ok());
  const auto tokenizer = parse_sentencepiece(model, {.add_bos_token = false});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  std::mt19937 random(11);
  const int num_rounds = HEDDLE_SANITIZED ? 1 : 3;
  for (int round = 0; round < num_rounds; ++round) {
    std::string text;
    while (text.size() < 4 * CancellationPoll::kPollBytes) text += parts[random() % parts.size()];
    std::vector<int> expected;
    ASSERT_TRUE(processor.Encode(text, &expected).ok());
    ASSERT_EQ(encode(**tokenizer, text, kPlain), expected);
  }
}

TEST(SentencePiece, EncodesALongTextInPartsAsTheLibraryDoesAtOnce) {
  expect_exact_parts(tiny_model(),
                     {"The frog ", "red", " ", "  ", "\u2581", "é中😀", ".", "hat. A "});
  expect_exact_parts(tiny_model(), {"frog", "é"});
  expect_exact_parts(tiny_model(), {" "});
  expect_exact_parts(testing::golden_model("normalizing_sentencepiece.model"),
                     {"The red frog", " ", "\u00E9", "\uFF21"});
}

TEST(SentencePiece, EncodesALongTextInPartsAsTheLibraryDoesForLlama2) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers/llama2/tokenizer.model");
  const auto model = read_whole_file(path);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  expect_exact_parts(*model,
                     {"Hello", " world", "  ", "中文", "é", "\n", "ing", "-", "=====", "42"});
}

TEST(SentencePiece, EndsSoonAfterItWasCancelled) {
  const auto tokenizer = make_tiny();
  std::string text;
  while (text.size() < (size_t{4} << 20)) text += "The frog sees a red hat. ";
  size_t num_calls = 0;
  const CancellationCheck check = [&] { return ++num_calls == 3; };
  std::vector<TokenId> ids;
  const auto fits = tokenizer->encode_at_most(text, text.size(), {.is_cancelled = &check}, ids);
  ASSERT_FALSE(fits.ok());
  EXPECT_EQ(fits.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(num_calls, 3u);
  EXPECT_LE(ids.size(), 4 * CancellationPoll::kPollBytes);
}

void expect_exact_limits(const Tokenizer& tokenizer) {
  constexpr std::array<std::string_view, 9> kParts = {
      "The frog", "red", "</s>", " ", "         ", "é中😀", "\u2581", "\n\n", "0"};
  std::mt19937 random(6);
  std::vector<TokenId> ids;
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (auto count = random() % 20; count > 0; --count) text += kParts[random() % kParts.size()];
    const auto all = encode(tokenizer, text);
    const auto fits = tokenizer.encode_at_most(text, all.size(), {}, ids);
    ASSERT_TRUE(fits.ok() && *fits) << text;
    ASSERT_EQ(ids, all);
    const auto too_long = tokenizer.encode_at_most(text, all.size() - 1, {}, ids);
    ASSERT_TRUE(too_long.ok() && !*too_long) << text;
  }
}

TEST(SentencePiece, AnUpperLimitRefusesNoTextThatFits) {
  expect_exact_limits(*make_tiny());
  expect_exact_limits(*make_tiny({.add_eos_token = true, .legacy = false}));
}

// In the wire format of protocol buffers; `bytes` are fewer than 128.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string piece(const std::string& text, char type) {
  return field(1, field(1, text) + "\x18" + type);
}

// A model of whole words takes the name of a byte for one token, which is no token of its bytes.
TEST(SentencePiece, AnUpperLimitRefusesNoNameOfAReservedPiece) {
  constexpr char kUnknown = 2;
  constexpr char kByte = 6;
  std::string model = piece("<unk>", kUnknown);
  for (int byte = 0; byte < 256; ++byte) model += piece(fmt::format("<0x{:02X}>", byte), kByte);
  const std::string of_words_with_bytes = "\x18\x03\x98\x02\x01";
  const std::string as_it_is{0x18, 0, 0x20, 0};  // no dummy prefix, no white space removed
  const auto tokenizer =
      parse_sentencepiece(model + field(2, of_words_with_bytes) + field(3, as_it_is), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  for (const std::string text : {"<0x41>", "<0x41>  ", "<unk><0x41>"}) {
    const auto all = encode(**tokenizer, text);
    std::vector<TokenId> ids;
    const auto fits = (*tokenizer)->encode_at_most(text, all.size(), {}, ids);
    ASSERT_TRUE(fits.ok());
    EXPECT_TRUE(*fits) << text << " of " << all.size();
    EXPECT_EQ(ids, all) << text;
  }
}

TEST(SentencePiece, AnUpperLimitRefusesNoTextOfLlama2ThatFits) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers/llama2");
  const auto tokenizer = load_tokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  expect_exact_limits(**tokenizer);
}

// The library needs over a second per megabyte, so that long texts are refused first.
TEST(SentencePiece, AnUpperLimitEndsTheWork) {
  const auto tokenizer = make_tiny({.add_bos_token = false});
  std::string text = "red</s>";
  for (size_t i = 0; i < (size_t{16} << 20); i += 4) text += "frog";
  std::vector<TokenId> ids;
  const auto fits = tokenizer->encode_at_most(text, 1000, {}, ids);
  ASSERT_TRUE(fits.ok());
  EXPECT_FALSE(*fits);
  EXPECT_THAT(spell(*tokenizer, ids), ElementsAre("▁red", "</s>"));
}

TEST(SentencePiece, CutsControlTokensOutOnlyWhenAsked) {
  const auto tokenizer = make_tiny();
  EXPECT_THAT(spell(*tokenizer, encode(*tokenizer, "red</s>red", kContent)),
              ElementsAre("▁red", "</s>", "▁red"));
  const auto plain = encode(*tokenizer, "</s>", kPlain);
  EXPECT_THAT(plain, ::testing::Not(::testing::Contains(2)));
  EXPECT_EQ(tokenizer->decode(plain, true), "</s>");
}

TEST(SentencePiece, WithoutLegacyOnlyTheFirstTextGetsASpace) {
  const auto tokenizer = make_tiny({.legacy = false});
  EXPECT_THAT(spell(*tokenizer, encode(*tokenizer, "red</s>red</s> red", kContent)),
              ElementsAre("▁red", "</s>", "red", "</s>", "▁red"));
}

TEST(SentencePiece, TakesAddedTokensAndFlagsFromTheConfig) {
  const auto tokenizer =
      make_tiny({.add_bos_token = false,
                 .add_eos_token = true,
                 .added_tokens = {{.id = 400, .content = "<|im_end|>", .special = true},
                                  {.id = 5, .content = "not <0x02>"}}});
  EXPECT_THAT(spell(*tokenizer, encode(*tokenizer, "red<|im_end|>")),
              ElementsAre("▁red", "<|im_end|>", "</s>"));
  EXPECT_EQ(tokenizer->vocab_size(), 401);
}

// As transformers' PreTrainedTokenizer reads the files of a folder without tokenizer.json.
TEST(SentencePiece, TakesTheTokensOfAllFilesByTransformersRule) {
  const auto first = static_cast<TokenId>(make_tiny()->vocab_size());
  const std::string added =
      fmt::format(R"({{"<|start|>": {}, "<tool>": {}, "</s>": 2}})", first + 1, first);
  const std::string_view map = R"({"pad_token": {"content": "<pad>", "lstrip": false},
      "additional_special_tokens": ["<|end|>", {"content": "<|start|>"}, "▁The"]})";
  auto config = parse_tokenizer_config(R"({"sep_token": "<sep>"})", map);
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_TRUE(join_added_tokens(added, *config).ok());
  const auto tokenizer = make_tiny(*config);

  const struct {
    const char* text;
    TokenId id;
    bool special;
  } kTokens[] = {
      {"<tool>", first, false},
      {"<|start|>", first + 1, true},
      {"<sep>", first + 2, true},
      {"<pad>", first + 3, true},
      {"<|end|>", first + 4, true},
      {"</s>", 2, true},
      {"▁The", *make_tiny()->token_to_id("▁The"), true},
  };

  for (const auto& [text, id, special] : kTokens) {
    EXPECT_EQ(tokenizer->token_to_id(text), id) << text;
    EXPECT_EQ(tokenizer->is_special(id), special) << text;
    EXPECT_THAT(encode(*tokenizer, text, kContent), ElementsAre(id)) << text;
  }
  EXPECT_EQ(tokenizer->vocab_size(), first + 5);
  EXPECT_EQ(tokenizer->pad_token(), first + 3);

  // With added_tokens_decoder neither of the other files counts.
  config = parse_tokenizer_config(
      fmt::format(R"({{"added_tokens_decoder": {{"{}": {{"content": "<x>"}}}}}})", first), map);
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_TRUE(join_added_tokens(added, *config).ok());
  ASSERT_TRUE(join_added_tokens("{,}", *config).ok());
  const auto listed = make_tiny(*config);
  EXPECT_EQ(listed->token_to_id("<x>"), first);
  EXPECT_EQ(listed->token_to_id("<tool>"), std::nullopt);
  EXPECT_EQ(listed->token_to_id("<pad>"), std::nullopt);
  EXPECT_EQ(listed->vocab_size(), first + 1);
  EXPECT_THAT(config->notes,
              Contains(HasSubstr("added_tokens.json is not used, because tokenizer_config.json has "
                                 "added_tokens_decoder: '<|start|>' differs")));
}

TEST(SentencePiece, StreamsTheTextOfDecode) {
  const auto tokenizer = make_tiny();
  std::mt19937 random(8);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids(random() % 10);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % 360) - 5;
    IncrementalDetokenizer detokenizer(*tokenizer);
    std::string text;
    for (const TokenId id : ids) text += detokenizer.push(id);
    text += detokenizer.finish();
    ASSERT_EQ(text, tokenizer->decode(ids, true));
    ASSERT_TRUE(is_valid_utf8(text));
  }
}

}  // namespace
}  // namespace heddle::tokenizer

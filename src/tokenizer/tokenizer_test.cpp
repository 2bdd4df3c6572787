// SPDX-License-Identifier: Apache-2.0
// Whole tokenizers: the tiny model of the repository, round trips, size and threads.
#include "tokenizer/tokenizer.h"

#include <array>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/compiler.h"
#include "support/test_data.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/testing/tokenizer_fixture.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocab_merges.h"

namespace heddle::tokenizer {
namespace {

using testing::byte_level_json;
using ::testing::ElementsAre;
using testing::encode;
using ::testing::HasSubstr;
using testing::Json;
using testing::kPlain;
using testing::make;
using testing::repeat;

std::unique_ptr<Tokenizer> load_tiny() {
  auto tokenizer = load_tokenizer(heddle::testing::repository_path("models/heddle-tiny"));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return std::move(tokenizer).value();
}

// NOLINTBEGIN(readability-identifier-naming): matchers are named as GoogleTest's
MATCHER(IsOkAndTrue, "") { return arg.ok() && *arg; }

MATCHER(IsOkAndFalse, "") { return arg.ok() && !*arg; }

// NOLINTEND(readability-identifier-naming)

std::string random_bytes(std::mt19937& random, size_t length) {
  std::string bytes;
  for (size_t i = 0; i < length; ++i) bytes.push_back(static_cast<char>(random()));
  return bytes;
}

TEST(HeddleTiny, HasItsRolesAndMarkers) {
  const auto tokenizer = load_tiny();
  EXPECT_EQ(tokenizer->eos_token(), 1427);
  EXPECT_EQ(tokenizer->eos_text(), "<|im_end|>");
  EXPECT_EQ(tokenizer->pad_token(), 1425);
  EXPECT_EQ(tokenizer->bos_token(), std::nullopt);
  EXPECT_EQ(tokenizer->vocab_size(), 1428);
  const auto ids = encode(*tokenizer, "<|im_start|>user\nThe frog<|im_end|>");
  EXPECT_EQ(ids.front(), 1426);
  EXPECT_EQ(ids.back(), 1427);
  EXPECT_EQ(tokenizer->decode(ids, true), "user\nThe frog");
}

TEST(HeddleTiny, RoundTripsAnyText) {
  const auto tokenizer = load_tiny();
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    const std::string bytes = random_bytes(random, random() % 200);
    const std::string text = replace_ill_formed_utf8(bytes);
    const auto ids = encode(*tokenizer, bytes, kPlain);
    ASSERT_EQ(ids, encode(*tokenizer, text, kPlain));
    // The model normalises to NFC, which the replacement of random bytes rarely needs.
    const std::string decoded = tokenizer->decode(ids, false);
    ASSERT_EQ(encode(*tokenizer, decoded, kPlain), ids);
    ASSERT_TRUE(is_valid_utf8(decoded));
  }
}

TEST(Tokenizer, RoundTripsEveryCharacterWithoutANormalizer) {
  const auto tokenizer = make(byte_level_json());
  std::string text;
  for (char32_t code_point = 0; code_point < 0x11000; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    append_utf8(code_point, text);
  }
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text, kPlain), false), text);
}

// Takes a fraction of a second each; a quadratic merge would never come back.
TEST(Tokenizer, EncodesAMegabyteOfOneLetter) {
  constexpr size_t kLetters = HEDDLE_SANITIZED ? 1 << 17 : 1 << 20;
  const auto tokenizer = make(byte_level_json());
  for (const char letter : {'a', ' ', 'z', '!', '\n', '1'}) {
    const std::string text(kLetters, letter);
    const auto ids = encode(*tokenizer, text);
    EXPECT_EQ(tokenizer->decode(ids, true), text);
  }
}

// Words, runs, characters that NFC composes, added tokens, ill-formed bytes.
std::string mixed_text(std::mt19937& random) {
  constexpr std::array<std::string_view, 10> kParts = {
      " hello", "world",   "aaaaaaaaaaaaaaaaa", "e\u0301", "\u1100\u1161\u11A8",
      "ab ab",  "<think>", "\n\n      ",        "\xFF",    "\u212B 42"};
  std::string text;
  for (auto count = random() % 20; count > 0; --count) {
    const std::string_view part = kParts[random() % kParts.size()];
    for (auto times = 1 + random() % 4; times > 0; --times) text += part;
  }
  return text;
}

TEST(Tokenizer, AnUpperLimitRefusesNoTextThatFits) {
  auto composing = byte_level_json();
  composing["normalizer"] = {{"type", "NFC"}};
  composing["post_processor"] = nullptr;
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(load_tiny());
  tokenizers.push_back(make(composing));
  tokenizers.push_back(make(composing, {.bos_token = "<|bos|>",
                                        .eos_token = "<|end|>",
                                        .add_bos_token = true,
                                        .add_eos_token = true}));
  tokenizers.push_back(make(testing::byte_fallback_json()));
  // Tokens that are looked for in the normalised text, and may be longer than any other.
  for (const char* flag : {"special", "lstrip", "rstrip"}) {
    auto with_tokens = composing;
    with_tokens["added_tokens"].push_back(testing::added_token(
        300, "\n\n      \n\n      ", {{"normalized", true}, {"special", false}}));
    with_tokens["added_tokens"].push_back(
        testing::added_token(301, "\u00C5 4", {{"normalized", true}, {flag, true}}));
    tokenizers.push_back(make(with_tokens));
  }
  std::mt19937 random(7);
  for (int round = 0; round < 800; ++round) {
    const auto& tokenizer = *tokenizers[static_cast<size_t>(round) % tokenizers.size()];
    const std::string text = mixed_text(random);
    const auto all = encode(tokenizer, text);
    std::vector<TokenId> ids = {1, 2, 3};
    ASSERT_THAT(tokenizer.encode_at_most(text, all.size(), {}, ids), IsOkAndTrue()) << text;
    ASSERT_EQ(ids, all);
    if (all.empty()) continue;
    ASSERT_THAT(tokenizer.encode_at_most(text, all.size() - 1, {}, ids), IsOkAndFalse()) << text;
    ASSERT_THAT(tokenizer.encode_at_most(text, random() % all.size(), {}, ids), IsOkAndFalse());
  }
}

// The number of tokens made of a text that is too long says how much work it was.
TEST(Tokenizer, AnUpperLimitEndsTheWork) {
  const auto tokenizer = make(byte_level_json());
  constexpr size_t kMaxTokens = 1000;
  constexpr size_t kLongestWord = 10;
  std::string words;
  std::string added;
  for (size_t i = 0; i < 50 * kMaxTokens; ++i) {
    words += " hello zzz";
    added += "<think>";
  }
  std::vector<TokenId> ids;
  for (const std::string& text : {words, added}) {
    ASSERT_THAT(tokenizer->encode_at_most(text, kMaxTokens, {}, ids), IsOkAndFalse());
    EXPECT_LE(ids.size(), kMaxTokens + kLongestWord);
  }
  // One word: no token with an 'a' has more than eight bytes.
  for (const size_t bytes : {8 * kMaxTokens + 1, size_t{1} << 24}) {
    ASSERT_THAT(tokenizer->encode_at_most(std::string(bytes, 'a'), kMaxTokens, {}, ids),
                IsOkAndFalse());
    EXPECT_EQ(ids.size(), 0u);
  }
  ASSERT_THAT(tokenizer->encode_at_most(std::string(8 * kMaxTokens, 'a'), kMaxTokens, {}, ids),
              IsOkAndTrue());
  EXPECT_EQ(ids.size(), kMaxTokens);
}

// A token that stands for many characters, or for none, makes a long text of few tokens.
TEST(Tokenizer, AnUpperLimitKnowsThatUnknownTextMayCostNothing) {
  auto json = testing::byte_fallback_json();
  json["model"]["byte_fallback"] = false;
  json["post_processor"] = nullptr;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\u00E9";
  const auto fused = make(json);
  std::vector<TokenId> ids;
  EXPECT_THAT(fused->encode_at_most(text, 2, {}, ids), IsOkAndTrue());
  EXPECT_EQ(ids, encode(*fused, text));
  json["model"]["unk_token"] = nullptr;
  EXPECT_THAT(make(json)->encode_at_most(text, 1, {}, ids), IsOkAndTrue());
}

testing::Json split_before_bytes(const char* pattern, const char* behavior) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", behavior},
             {"invert", false}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

// A poll is made every kPollBytes of work, so their number says how much of it was done.
TEST(Tokenizer, AnUpperLimitEndsTheNormaliser) {
  auto json = byte_level_json();
  json["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = make(json);
  int num_calls = 0;
  const CancellationCheck never = [&] {
    ++num_calls;
    return false;
  };
  const std::string text = repeat("zu\u0308rich ", 1 << 20);
  std::vector<TokenId> ids;
  EXPECT_THAT(tokenizer->encode_at_most(text, 1000, {.is_cancelled = &never}, ids), IsOkAndFalse());
  EXPECT_LE(num_calls, 2);
  // Where a pre-tokenizer drops text nothing is known before it ran.
  json["pre_tokenizer"] = split_before_bytes("z[^ ]+ ", "Removed");
  EXPECT_THAT(make(json)->encode_at_most(text, 1, {}, ids), IsOkAndTrue());
}

TEST(Tokenizer, EndsSoonAfterItWasCancelled) {
  auto json = byte_level_json();
  json["normalizer"] = {{"type", "NFC"}};
  auto contiguous = json;
  contiguous["pre_tokenizer"] = split_before_bytes("[a-z]", "Contiguous");
  auto replacing = json;
  replacing["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "b"}};
  auto lowering = json;
  lowering["normalizer"] = {{"type", "Lowercase"}};
  constexpr size_t kCalls = 3;
  size_t num_calls = 0;
  const CancellationCheck check = [&] { return ++num_calls == kCalls; };
  for (const auto& file : {json, contiguous, replacing, lowering}) {
    const auto tokenizer = make(file);
    for (const std::string_view part :
         {" hello world", "a", "\u0301", "<think>", "<thinkin", "-"}) {
      const std::string text = repeat(part, (size_t{4} << 20) / part.size());
      std::vector<TokenId> ids;
      num_calls = 0;
      const auto fits = tokenizer->encode_at_most(text, text.size(), {.is_cancelled = &check}, ids);
      ASSERT_FALSE(fits.ok()) << part;
      EXPECT_EQ(fits.status().code(), StatusCode::kCancelled) << part;
      EXPECT_EQ(num_calls, kCalls) << "a check that said yes is asked no more";
      EXPECT_LE(ids.size(), kCalls * CancellationPoll::kPollBytes) << part;
    }
  }
}

TEST(Tokenizer, ACheckThatSaysNoChangesNothing) {
  const auto tokenizer = load_tiny();
  const std::string text = repeat("The frog u\u0308ber ", 20'000) + std::string(100'000, 'a');
  const CancellationCheck never = [] { return false; };
  EXPECT_EQ(encode(*tokenizer, text, {.is_cancelled = &never}), encode(*tokenizer, text));
}

TEST(Tokenizer, RefusesATextBeyondTheLimit) {
  const auto tokenizer = make(byte_level_json());
  const std::string_view endless("", Tokenizer::kMaxTextBytes + 1);  // never read
  const auto ids = tokenizer->encode(endless);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), StatusCode::kInvalidArgument);
}

TEST(Tokenizer, EncodesTheSameFromManyThreads) {
  const auto tokenizer = load_tiny();
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 50; ++i) {
    texts.push_back("The frog number " + std::to_string(i * i) + " hops over " +
                    std::string(static_cast<size_t>(i), 'o') + " stones.");
    expected.push_back(encode(*tokenizer, texts.back()));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 400; ++i) {
        const size_t which = (i * 7 + static_cast<size_t>(t)) % texts.size();
        const auto ids = tokenizer->encode(texts[which]);
        ASSERT_TRUE(ids.ok());
        ASSERT_EQ(*ids, expected[which]);
        ASSERT_EQ(tokenizer->decode(*ids, true), texts[which]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A word is merged once and then remembered; long texts make words push each other out.
TEST(Tokenizer, GivesCachedWordsTheSameIds) {
  const auto tokenizer = load_tiny();
  const auto fresh = load_tiny();
  std::mt19937 random(9);
  std::string text;
  for (int i = 0; i < 60000; ++i) {
    text += ' ';
    for (size_t length = 1 + random() % 4; length > 0; --length) {
      text.push_back(static_cast<char>('a' + random() % 26));
    }
  }
  const auto first = encode(*tokenizer, text);
  EXPECT_EQ(encode(*tokenizer, text), first);
  EXPECT_EQ(encode(*fresh, text.substr(0, 1000)), encode(*tokenizer, text.substr(0, 1000)));
  EXPECT_EQ(tokenizer->decode(first, true), text);
}

TEST(VocabMerges, SplitsAsGpt2OrQwen2Do) {
  const auto json = byte_level_json();
  auto vocabulary = json["model"]["vocab"];
  vocabulary["<|endoftext|>"] = 270;
  std::string merges = "#version: 0.2\n";
  for (const auto& line : json["model"]["merges"]) merges += line.get<std::string>() + "\r\n";

  const auto gpt2 = parse_vocab_merges(vocabulary.dump(), merges, {});
  ASSERT_TRUE(gpt2.ok()) << gpt2.status().to_string();
  EXPECT_THAT(encode(**gpt2, "hello world<|endoftext|>"),
              ElementsAre(testing::kHello, testing::kSpaceWorld, 270));
  EXPECT_EQ((*gpt2)->eos_token(), 270);
  EXPECT_TRUE((*gpt2)->is_special(270));

  TokenizerConfig config = {.tokenizer_class = "Qwen2Tokenizer"};
  ASSERT_TRUE(join_added_tokens(R"({"<x>": 300})", config).ok());
  const auto qwen2 = parse_vocab_merges(vocabulary.dump(), merges, config);
  ASSERT_TRUE(qwen2.ok()) << qwen2.status().to_string();
  EXPECT_THAT(encode(**qwen2, "e\u0301<x>"), ElementsAre(268, 300));  // composed
  EXPECT_EQ((*qwen2)->eos_token(), std::nullopt);
}

TEST(SameTokensTest, OfOneFileTheyAre) {
  EXPECT_TRUE(check_same_tokens(*make(byte_level_json()), *make(byte_level_json())).ok());
}

TEST(SameTokensTest, TokensThatOnlyOneHasDoNotCount) {
  Json more = byte_level_json();
  more["added_tokens"].push_back(testing::added_token(testing::kThink + 1, "<tool>"));
  Json later = byte_level_json();
  later["added_tokens"].push_back(testing::added_token(testing::kThink + 9, "<later>"));
  EXPECT_TRUE(check_same_tokens(*make(more), *make(later)).ok());
  EXPECT_TRUE(check_same_tokens(*make(byte_level_json()), *make(more)).ok());
  EXPECT_TRUE(check_same_tokens(*make(more), *make(byte_level_json())).ok());
}

TEST(SameTokensTest, TheFirstThatDiffersIsNamed) {
  Json other = byte_level_json();
  other["added_tokens"][1]["content"] = "<|fin|>";
  const Status status = check_same_tokens(*make(byte_level_json()), *make(other));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("token 271 is \"<|fin|>\", not \"<|end|>\""));
}

}  // namespace
}  // namespace heddle::tokenizer

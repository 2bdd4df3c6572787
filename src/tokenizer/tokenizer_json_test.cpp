// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/testing/tokenizer_fixture.h"

namespace heddle::tokenizer {
namespace {

using namespace testing;  // NOLINT: the synthetic files
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(TokenizerJson, RunsAByteLevelPipeline) {
  const auto tokenizer = make(byte_level_json());
  EXPECT_THAT(encode(*tokenizer, "hello world"), ElementsAre(kHello, kSpaceWorld));
  EXPECT_THAT(encode(*tokenizer, "é"), ElementsAre(268));
  EXPECT_THAT(encode(*tokenizer, ""), IsEmpty());
  EXPECT_EQ(tokenizer->vocab_size(), 273);
  EXPECT_EQ(tokenizer->id_to_token(kSpaceWorld), "Ġworld");
  EXPECT_EQ(tokenizer->token_to_id("Ġworld"), kSpaceWorld);
  EXPECT_EQ(tokenizer->token_to_id(" world"), std::nullopt);
}

TEST(TokenizerJson, ReadsMergesInBothSpellings) {
  Json json = byte_level_json();
  for (Json& merge : json["model"]["merges"]) {
    const auto line = merge.get<std::string>();
    const size_t space = line.find(' ');
    merge = Json::array({line.substr(0, space), line.substr(space + 1)});
  }
  EXPECT_THAT(encode(*make(json), "hello world"), ElementsAre(kHello, kSpaceWorld));
}

TEST(TokenizerJson, ParsesSpecialTokensOnlyWhenAsked) {
  const auto tokenizer = make(byte_level_json());
  EXPECT_THAT(encode(*tokenizer, "<|bos|>hello<|end|>"), ElementsAre(kBos, kHello, kEnd));
  const auto plain = encode(*tokenizer, "<|end|>", kPlain);
  EXPECT_THAT(plain, ElementsAre('<', '|', 'e', 'n', 'd', '|', '>'));
  EXPECT_THAT(encode(*tokenizer, "<think>", kPlain), ElementsAre(kThink));  // not special
  EXPECT_TRUE(tokenizer->is_special(kEnd));
  EXPECT_FALSE(tokenizer->is_special(kThink));
}

TEST(TokenizerJson, TakesWholeWordsWithIgnoreMerges) {
  Json json = byte_level_json();
  json["model"]["vocab"]["zzz"] = 300;  // no merge leads there
  EXPECT_THAT(encode(*make(json), "zzz"), ElementsAre('z', 'z', 'z'));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(encode(*make(json), "zzz zz"), ElementsAre(300, ' ', 'z', 'z'));
}

TEST(TokenizerJson, RunsAByteFallbackPipeline) {
  const auto tokenizer = make(byte_fallback_json());
  const TokenId space_ab = tokenizer->token_to_id("▁ab").value();
  EXPECT_THAT(encode(*tokenizer, "ab ab"), ElementsAre(1, space_ab, space_ab));
  EXPECT_THAT(encode(*tokenizer, "é", kContent),
              ElementsAre(tokenizer->token_to_id("▁").value(), 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "ab é ab"), true), "ab é ab");
}

TEST(TokenizerJson, FallsBackToTheUnknownTokenOrNothing) {
  Json json = byte_fallback_json();
  json["model"]["byte_fallback"] = false;
  EXPECT_THAT(encode(*make(json), "aéé", kContent), ElementsAre(263, 0));  // fused
  json["model"]["fuse_unk"] = false;
  EXPECT_THAT(encode(*make(json), "aéé", kContent), ElementsAre(263, 0, 0));
  json["model"]["unk_token"] = nullptr;
  EXPECT_THAT(encode(*make(json), "aéé", kContent), ElementsAre(263));
}

TEST(TokenizerJson, NormalizesBeforeSplitting) {
  Json json = byte_level_json();
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_THAT(encode(*make(json), "e\u0301"), ElementsAre(268));
  json["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Lowercase"}},
        {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
        {{"type", "Replace"}, {"pattern", {{"Regex", "[0-9]+"}}}, {"content", "#"}}}}};
  EXPECT_THAT(encode(*make(json), " HELLO42 "), ElementsAre(kHello, '#'));
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", {{{"type", "NFD"}}, {{"type", "StripAccents"}}}}};
  EXPECT_THAT(encode(*make(json), "é"), ElementsAre('e'));
}

TEST(TokenizerJson, LooksForNormalizedAddedTokensInNormalizedText) {
  Json json = byte_level_json();
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"].push_back(added_token(273, "YES", {{"normalized", true}}));
  json["added_tokens"].push_back(added_token(274, "NO", {{"normalized", false}}));
  const auto tokenizer = make(json);
  EXPECT_THAT(encode(*tokenizer, "yesYES"), ElementsAre(273, 273));
  EXPECT_THAT(encode(*tokenizer, "noNO"), ElementsAre('n', 'o', 274));
}

TEST(TokenizerJson, HonoursTheFlagsOfAddedTokens) {
  Json json = byte_level_json();
  json["added_tokens"].push_back(
      added_token(273, "<mask>", {{"lstrip", true}, {"rstrip", true}, {"single_word", true}}));
  const auto tokenizer = make(json);
  EXPECT_THAT(encode(*tokenizer, "hello <mask> hello"), ElementsAre(kHello, 273, kHello));
  EXPECT_THAT(encode(*tokenizer, "z<mask>"), ElementsAre('z', '<', 'm', 'a', 's', 'k', '>'));
}

TEST(TokenizerJson, ReadsTheOtherPreTokenizers) {
  const auto split_with = [](Json step) {
    Json json = byte_level_json();
    json["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {std::move(step),
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    return encode(*make(json), "aaaa11 aa.");
  };
  EXPECT_THAT(split_with({{"type", "Digits"}, {"individual_digits", true}}),
              ElementsAre(266, '1', '1', ' ', 265, '.'));
  EXPECT_THAT(split_with({{"type", "WhitespaceSplit"}}), ElementsAre(266, '1', '1', 265, '.'));
  EXPECT_THAT(split_with({{"type", "Whitespace"}}), ElementsAre(266, '1', '1', 265, '.'));
  EXPECT_THAT(split_with({{"type", "BertPreTokenizer"}}), ElementsAre(266, '1', '1', 265, '.'));
  EXPECT_THAT(split_with({{"type", "Punctuation"}}), ElementsAre(266, '1', '1', ' ', 265, '.'));
  EXPECT_THAT(split_with({{"type", "CharDelimiterSplit"}, {"delimiter", "1"}}),
              ElementsAre(266, ' ', 265, '.'));
  EXPECT_THAT(split_with({{"type", "Split"},
                          {"pattern", {{"String", "aa"}}},
                          {"behavior", "Isolated"},
                          {"invert", false}}),
              ElementsAre(265, 265, '1', '1', ' ', 265, '.'));
}

TEST(TokenizerJson, SplitsAtMetaspaces) {
  Json json = byte_fallback_json();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  json["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  const auto tokenizer = make(json);
  const TokenId ab = tokenizer->token_to_id("ab").value();
  const TokenId space_ab = tokenizer->token_to_id("▁ab").value();
  EXPECT_THAT(encode(*tokenizer, "ab ab</s>ab", kContent), ElementsAre(space_ab, space_ab, 2, ab));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{space_ab, space_ab}, true), "ab ab");
}

TEST(TokenizerJson, PutsTheTemplatesTokensAroundAText) {
  Json json = byte_level_json();
  json["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "B"}, {"type_id", 0}}}},
           {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
           {{"SpecialToken", {{"id", "E"}, {"type_id", 0}}}}}},
         {"special_tokens",
          {{"B", {{"id", "B"}, {"ids", {kBos}}}}, {"E", {{"id", "E"}, {"ids", {kEnd, kEnd}}}}}}}}}};
  const auto tokenizer = make(json);
  EXPECT_THAT(encode(*tokenizer, "hello"), ElementsAre(kBos, kHello, kEnd, kEnd));
  EXPECT_THAT(encode(*tokenizer, "hello", kContent), ElementsAre(kHello));
  json["post_processor"] = {
      {"type", "RobertaProcessing"}, {"cls", {"<|bos|>", kBos}}, {"sep", {"<|end|>", kEnd}}};
  EXPECT_THAT(encode(*make(json), ""), ElementsAre(kBos, kEnd));
}

TEST(TokenizerJson, TakesRolesAndTokensFromTheConfig) {
  const TokenizerConfig config = {
      .bos_token = "<|bos|>",
      .eos_token = "<|end|>",
      .pad_token = "not there",
      .add_bos_token = true,
      .added_tokens = {{.id = 280, .content = "<tool>", .special = true},
                       {.id = kEnd, .content = "<other>"}}};
  const auto tokenizer = make(byte_level_json(), config);
  EXPECT_EQ(tokenizer->bos_token(), kBos);
  EXPECT_EQ(tokenizer->eos_text(), "<|end|>");
  EXPECT_EQ(tokenizer->pad_token(), std::nullopt);
  EXPECT_EQ(tokenizer->token_to_id("<other>"), 281);  // its id is taken: the next free one
  EXPECT_THAT(encode(*tokenizer, "<tool>"), ElementsAre(kBos, 280));
  EXPECT_EQ(tokenizer->vocab_size(), 282);
}

// As in Hugging Face's tokenizers: a token has the id of its text.
TEST(TokenizerJson, GivesAddedTokensTheIdsOfTheVocabulary) {
  Json json = byte_level_json();
  json["added_tokens"].push_back(added_token(999, "hello"));  // 259 in the vocabulary
  json["added_tokens"].push_back(added_token(97, "<new>"));   // the id of "a"
  json["added_tokens"].push_back(added_token(kEnd, "<twin>"));
  json["added_tokens"].push_back(added_token(500, "<new>"));  // once more
  const auto tokenizer = make(json);
  EXPECT_EQ(tokenizer->token_to_id("hello"), kHello);
  EXPECT_TRUE(tokenizer->is_special(kHello));
  EXPECT_EQ(tokenizer->token_to_id("<new>"), 1000);  // beyond every id that a file names
  EXPECT_EQ(tokenizer->token_to_id("<twin>"), 1001);
  EXPECT_EQ(tokenizer->token_to_id("<|end|>"), kEnd);
  EXPECT_EQ(tokenizer->id_to_token(97), "a");
  EXPECT_THAT(encode(*tokenizer, "a<new>hello", kContent), ElementsAre(97, 1000, kHello));
}

// As in Hugging Face's tokenizers, which need an unknown token only where they meet one.
TEST(TokenizerJson, LoadsTokensThatNobodyCanUse) {
  Json json = byte_level_json();
  json["model"]["unk_token"] = "<unk>";                   // not in the vocabulary
  json["added_tokens"].push_back(added_token(999, ""));   // no text
  json["added_tokens"].push_back(added_token(kEnd, ""));  // and an id that is taken
  json["added_tokens"].push_back(added_token(998, "<x>"));
  json["added_tokens"].push_back(added_token(998, "<y>"));
  const auto tokenizer = make(json);
  EXPECT_EQ(tokenizer->token_to_id("<|end|>"), kEnd);
  EXPECT_EQ(tokenizer->token_to_id("<x>"), 998);
  EXPECT_EQ(tokenizer->token_to_id("<y>"), 1000);
  EXPECT_EQ(tokenizer->token_to_id(""), std::nullopt);
  EXPECT_THAT(encode(*tokenizer, "hello world"), ElementsAre(kHello, kSpaceWorld));

  Json fallback = byte_fallback_json();
  fallback["model"]["unk_token"] = "<missing>";
  fallback["model"]["byte_fallback"] = false;
  EXPECT_THAT(encode(*make(fallback), "ab☃ab", kContent), SizeIs(2));  // the snowman is left out
}

// Python's json module reads all of this, and takes the last value of a key.
TEST(TokenizerJson, ReadsWhatPythonReads) {
  std::string text = byte_level_json().dump();
  text.insert(1, R"("model": 5, "unread": [NaN, {"n": 1000000000000000019884624838656}, 1e999],
                   "lone": "\ud800", )");
  const std::string vocabulary = R"("vocab":{)";
  text.insert(text.find(vocabulary) + vocabulary.size(), R"("a":12345,"b":98.0,)");
  const auto tokenizer = parse_tokenizer_json(text, {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->token_to_id("a"), 97);
  EXPECT_EQ((*tokenizer)->id_to_token(12345), "");
}

TEST(TokenizerConfigFile, ReadsWhatPythonReads) {
  const auto config = parse_tokenizer_config(R"({
    "model_max_length": 1000000000000000019884624838656,
    "extra": {"deep": [[-Infinity, 123456789012345678901234567890]]},
    "eos_token": "</a>", "eos_token": {"content": "</s>"}, "pad_token": null, "add_bos_token": 1,
    "added_tokens_decoder": {"2": {"content": "<a>"}, "2": {"content": "<b>"}}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->eos_token, "</s>");
  EXPECT_EQ(config->pad_token, std::nullopt);
  EXPECT_EQ(config->add_bos_token, true);
  ASSERT_EQ(config->added_tokens.size(), 1u);
  EXPECT_EQ(config->added_tokens[0].content, "<b>");
}

// As in transformers: added_tokens_decoder says that tokenizer_config.json is complete.
TEST(TokenizerConfigFile, JoinsTheSpecialTokensMap) {
  const std::string map = R"({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<s>"})";
  const auto of_old = parse_tokenizer_config(R"({"eos_token": "</s>"})", map);
  ASSERT_TRUE(of_old.ok()) << of_old.status().message();
  EXPECT_EQ(of_old->eos_token, "<|im_end|>");
  EXPECT_EQ(of_old->bos_token, "<s>");
  ASSERT_EQ(of_old->notes.size(), 1u);
  EXPECT_THAT(of_old->notes[0],
              HasSubstr("'</s>' in tokenizer_config.json and '<|im_end|>' in "
                        "special_tokens_map.json; the one of special_tokens_map"));
  const auto complete =
      parse_tokenizer_config(R"({"eos_token": "</s>", "added_tokens_decoder": {}})", map);
  ASSERT_TRUE(complete.ok()) << complete.status().message();
  EXPECT_EQ(complete->eos_token, "</s>");
  EXPECT_EQ(complete->bos_token, std::nullopt);
  ASSERT_EQ(complete->notes.size(), 1u);
  EXPECT_THAT(complete->notes[0], HasSubstr("the one of tokenizer_config.json is used"));
  EXPECT_THAT(parse_tokenizer_config("{}", R"({"eos_token": 5})").status().message(),
              HasSubstr("special_tokens_map.json: eos_token is 5"));
}

// The classes of Llama build what stands around a text from these flags.
TEST(TokenizerJson, FollowsTheFlagsOfLlamaClasses) {
  Json json = byte_level_json();
  json["post_processor"] = {
      {"type", "RobertaProcessing"}, {"cls", {"<|bos|>", kBos}}, {"sep", {"<|end|>", kEnd}}};
  TokenizerConfig config = {.bos_token = "<|bos|>", .eos_token = "<|end|>"};
  config.add_bos_token = false;
  config.add_eos_token = true;
  EXPECT_THAT(encode(*make(json, config), "a"), ElementsAre(kBos, 97, kEnd));
  config.tokenizer_class = "LlamaTokenizerFast";
  EXPECT_THAT(encode(*make(json, config), "a"), ElementsAre(97, kEnd));
}

TEST(TokenizerJson, ReplacesIllFormedInput) {
  const auto tokenizer = make(byte_level_json());
  EXPECT_EQ(encode(*tokenizer, "a\xFF\xE2\x82z"), encode(*tokenizer, "a��z"));
}

}  // namespace
}  // namespace heddle::tokenizer

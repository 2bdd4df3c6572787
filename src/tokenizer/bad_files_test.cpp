// SPDX-License-Identifier: Apache-2.0
// Broken tokenizer files: each gives one readable error, never a crash and never an allocation of a
// size that the file only claims.
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/testing/tokenizer_fixture.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/vocab_merges.h"

namespace heddle::tokenizer {
namespace {

using testing::byte_level_json;
using ::testing::HasSubstr;
using testing::Json;

// The message for a good file that `damage` breaks.
std::string error_after(const std::function<void(Json&)>& damage) {
  Json json = byte_level_json();
  damage(json);
  const auto tokenizer = testing::parse(json);
  return tokenizer.ok() ? "no error" : tokenizer.status().message();
}

TEST(BadTokenizerJson, NamesTheMissingKey) {
  EXPECT_THAT(error_after([](Json& j) { j.erase("model"); }), HasSubstr("model is missing"));
  EXPECT_THAT(error_after([](Json& j) { j["model"].erase("vocab"); }),
              HasSubstr("model.vocab is missing"));
  EXPECT_THAT(error_after([](Json& j) { j["model"].erase("merges"); }),
              HasSubstr("model.merges is missing"));
  EXPECT_THAT(error_after([](Json& j) { j["added_tokens"][1].erase("content"); }),
              HasSubstr("added_tokens[1].content is missing"));
  EXPECT_THAT(error_after([](Json& j) { j["pre_tokenizer"].erase("type"); }),
              HasSubstr("pre_tokenizer.type is missing"));
}

TEST(BadTokenizerJson, NamesTheWrongType) {
  EXPECT_THAT(error_after([](Json& j) { j = Json::array(); }),
              HasSubstr("the document is []; expected an object"));
  EXPECT_THAT(error_after([](Json& j) { j["model"] = 3; }),
              HasSubstr("model is 3; expected an object"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["vocab"] = "x"; }),
              HasSubstr("model.vocab is \"x\"; expected an object"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["vocab"]["a"] = 1.5; }),
              HasSubstr("model.vocab['a'] is 1.5; expected a 64-bit integer"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["merges"][2] = 7; }),
              HasSubstr("model.merges[2] is 7; expected an array"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["merges"][2] = {"a", "b", "c"}; }),
              HasSubstr("model.merges[2] is [\"a\",\"b\",\"c\"]; expected two tokens"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["merges"][2] = {"a", 1}; }),
              HasSubstr("model.merges[2][1] is 1; expected a string"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["ignore_merges"] = "yes"; }),
              HasSubstr("model.ignore_merges is \"yes\"; expected true or false"));
  EXPECT_THAT(error_after([](Json& j) { j["added_tokens"][0]["special"] = 7; }),
              HasSubstr("added_tokens[0].special is 7"));
}

TEST(BadTokenizerJson, NamesTheUnknownTokenOfAMerge) {
  EXPECT_THAT(error_after([](Json& j) { j["model"]["merges"].push_back("qq x"); }),
              HasSubstr("model.merges[14]: the merge 'qq' 'x' needs the token 'qq'"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["merges"].push_back("x y"); }),
              HasSubstr("needs the token 'xy'"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["merges"].push_back("x"); }),
              HasSubstr("'x' is not two tokens"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["merges"].push_back(" x"); }),
              HasSubstr("has an empty side"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["merges"].push_back("｜ x"); }),
              HasSubstr("needs the token '｜'"));
}

TEST(BadTokenizerJson, RefusesIdsThatAreTakenOrOutOfRange) {
  EXPECT_THAT(error_after([](Json& j) { j["model"]["vocab"]["qq"] = 97; }),
              HasSubstr("two tokens have the id 97"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["vocab"]["qq"] = -1; }),
              HasSubstr("has the id -1"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["vocab"]["qq"] = INT64_MAX; }),
              HasSubstr("has the id 9223372036854775807, outside 0 to"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["vocab"]["qq"] = UINT64_MAX; }),
              HasSubstr("expected a 64-bit integer"));
  EXPECT_THAT(error_after([](Json& j) { j["added_tokens"][0]["id"] = 1e18; }),
              HasSubstr("added_tokens[0].id"));
  EXPECT_THAT(error_after([](Json& j) { j["added_tokens"][0]["id"] = 2'000'000'000; }),
              HasSubstr("added_tokens[0].id is 2000000000"));
}

TEST(BadTokenizerJson, NamesLineAndColumn) {
  const auto parsed = parse_tokenizer_json("{\n  \"model\": {\n    \"vocab\": {\"a\": 0,}\n", {});
  EXPECT_THAT(parsed.status().message(), HasSubstr("line 3, column 21: a comma before '}'"));
}

TEST(BadTokenizerJson, NamesWhatIsNotSupported) {
  EXPECT_THAT(error_after([](Json& j) { j["model"]["type"] = "Unigram"; }),
              HasSubstr("model.type is 'Unigram'"));
  EXPECT_THAT(error_after([](Json& j) { j["normalizer"] = {{"type", "Precompiled"}}; }),
              HasSubstr("the normalizer 'Precompiled' is not supported"));
  EXPECT_THAT(error_after([](Json& j) { j["pre_tokenizer"] = {{"type", "UnicodeScripts"}}; }),
              HasSubstr("the pre-tokenizer 'UnicodeScripts' is not supported"));
  EXPECT_THAT(error_after([](Json& j) { j["post_processor"] = {{"type", "Odd"}}; }),
              HasSubstr("the post-processor 'Odd' is not supported"));
  EXPECT_THAT(error_after([](Json& j) { j["decoder"] = {{"type", "CTC"}}; }),
              HasSubstr("the decoder 'CTC' is not supported"));
  EXPECT_THAT(error_after([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }),
              HasSubstr("model.end_of_word_suffix is '</w>'"));
  EXPECT_THAT(error_after([](Json& j) { j["pre_tokenizer"] = nullptr; }),
              HasSubstr("the decoder is ByteLevel but the pre-tokenizer is not"));
}

TEST(BadTokenizerJson, SaysWhereAPatternIsWrong) {
  const auto with_pattern = [](const char* pattern) {
    return error_after([&](Json& j) {
      j["pre_tokenizer"] = {{"type", "Split"},
                            {"pattern", {{"Regex", pattern}}},
                            {"behavior", "Isolated"},
                            {"invert", false}};
    });
  };
  EXPECT_THAT(with_pattern("(a"), HasSubstr("pre_tokenizer: the pattern '(a' does not compile"));
  EXPECT_THAT(with_pattern("[^a&&b]"), HasSubstr("intersection"));
}

TEST(BadTokenizerJson, RefusesTemplatesWithoutTheirTokens) {
  EXPECT_THAT(error_after([](Json& j) {
                j["post_processor"] = {
                    {"type", "TemplateProcessing"},
                    {"single", {{{"SpecialToken", {{"id", "B"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                    {"special_tokens", Json::object()}};
              }),
              HasSubstr("post_processor.special_tokens.B is missing"));
  EXPECT_THAT(error_after([](Json& j) {
                j["post_processor"] = {{"type", "TemplateProcessing"}, {"single", Json::array()}};
              }),
              HasSubstr("has no Sequence"));
}

TEST(BadTokenizerJson, SurvivesTruncationAtEveryByte) {
  const std::string text = byte_level_json().dump();
  for (size_t length = 0; length < text.size(); ++length) {
    const auto tokenizer = parse_tokenizer_json(text.substr(0, length), {});
    ASSERT_FALSE(tokenizer.ok());
    ASSERT_THAT(tokenizer.status().message(), HasSubstr("not valid JSON"));
  }
}

TEST(BadTokenizerJson, SurvivesRandomDamage) {
  const std::string text = byte_level_json().dump();
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = text;
    for (int i = 0; i < 3; ++i) {
      damaged[random() % damaged.size()] = "{}[]\",:0129aeT\\"[random() % 15];
    }
    const auto tokenizer = parse_tokenizer_json(damaged, {});
    if (tokenizer.ok()) {
      ASSERT_TRUE((*tokenizer)->encode("hello <think> world").ok());
    } else {
      ASSERT_FALSE(tokenizer.status().message().empty());
    }
  }
}

TEST(BadTokenizerJson, RefusesDeepNesting) {
  const auto nested = [](size_t depth, const std::string& open, const std::string& inner,
                         const std::string& close) {
    std::string text;
    for (size_t i = 0; i < depth; ++i) text += open;
    text += inner;
    for (size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  EXPECT_FALSE(parse_tokenizer_json(nested(1'000'000, "[", "", "]"), {}).ok());
  const std::string deep =
      nested(2000, R"({"type":"Sequence","normalizers":[)", R"({"type":"NFC"})", "]}");
  const auto tokenizer = parse_tokenizer_json(
      R"({"model":{"vocab":{"a":0},"merges":[]},"normalizer":)" + deep + "}", {});
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("not valid JSON"));
  Json json = byte_level_json();
  Json steps = Json::array();
  for (int i = 0; i < 100; ++i) steps.push_back({{"type", "Digits"}});
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  EXPECT_THAT(testing::parse(json).status().message(), HasSubstr("more than 64 pre-tokenizers"));
}

TEST(BadTokenizerConfig, NamesTheKey) {
  const auto error = [](std::string_view json) {
    const auto config = parse_tokenizer_config(json);
    return config.ok() ? "no error" : config.status().message();
  };
  EXPECT_THAT(error("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("the document is []"));
  EXPECT_THAT(error(R"({"eos_token": 7})"), HasSubstr("eos_token is 7; expected a string"));
  EXPECT_THAT(error(R"({"eos_token": {"lstrip": true}})"),
              HasSubstr("eos_token.content is missing"));
  EXPECT_THAT(error(R"({"add_bos_token": "true"})"), HasSubstr("add_bos_token is \"true\""));
  EXPECT_THAT(error(R"({"added_tokens_decoder": {"x": {}}})"), HasSubstr("has the key 'x'"));
  EXPECT_THAT(error(R"({"added_tokens_decoder": {"-4": {"content": "a"}}})"),
              HasSubstr("has the key '-4'"));
  EXPECT_THAT(error(R"({"added_tokens_decoder": {"99999999999": {"content": "a"}}})"),
              HasSubstr("expected a token id"));
  EXPECT_THAT(error(R"({"added_tokens_decoder": {"4": {}}})"),
              HasSubstr("added_tokens_decoder.4.content is missing"));
}

TEST(BadVocabMerges, NamesTheFileAndLine) {
  const auto error = [](std::string_view vocab, std::string_view merges,
                        std::string_view added = "") {
    TokenizerConfig config;
    if (const Status status = join_added_tokens(added, config); !status.ok()) {
      return status.message();
    }
    const auto tokenizer = parse_vocab_merges(vocab, merges, config);
    return tokenizer.ok() ? std::string("no error") : tokenizer.status().message();
  };
  EXPECT_THAT(error("", ""), HasSubstr("vocab.json: not valid JSON"));
  EXPECT_THAT(error("{}", ""), HasSubstr("is empty"));
  EXPECT_THAT(error(R"({"a": 0})", "#version: 0.2\na b\n"),
              HasSubstr("merges.txt line 2: the merge 'a' 'b' needs the token 'b'"));
  EXPECT_THAT(error(R"({"a": 0})", "\r\na\r\n"), HasSubstr("merges.txt line 2"));
  EXPECT_THAT(error(R"({"a": 0})", "", R"({"<x>": -1})"), HasSubstr("'<x>' has the id -1"));
}

TEST(BadSentencePiece, IsNamedAsNone) {
  for (const std::string model : {"", "not a model", "\x0A\xFF\xFF\xFF\xFF\x7F"}) {
    const auto tokenizer = parse_sentencepiece(model, {});
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_THAT(tokenizer.status().message(), HasSubstr("not a SentencePiece model"));
  }
}

TEST(LoadTokenizer, NamesTheFolderWithoutFiles) {
  const auto tokenizer = load_tokenizer("/nonexistent/model");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("/nonexistent/model has no tokenizer.json"));
}

// Each of them is all that a folder has of a tokenizer.
TEST(LoadTokenizer, NamesTheFilesOfOtherTokenizers) {
  const auto folder = std::filesystem::path(::testing::TempDir()) /
                      ("heddle_other_tokenizers_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (const char* const name : {"qwen.tiktoken", "tekken.json", "vocab.json", "merges.txt",
                                 "spiece.model", "sentencepiece.bpe.model", "vocab.txt"}) {
    std::ofstream(folder / name) << "{}";
    const Status status = load_tokenizer(folder).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(std::string("has only a ") + name + ", "));
    EXPECT_THAT(status.message(), HasSubstr("put the tokenizer.json of the same model beside it"));
    std::filesystem::remove(folder / name);
  }
  std::filesystem::create_symlink("../blobs/77", folder / "tokenizer.json");
  EXPECT_THAT(load_tokenizer(folder).status().message(), HasSubstr("tokenizer.json is a link to "));
  std::ofstream(folder / "vocab.json") << R"({"a": 0, "b": 1})";
  std::ofstream(folder / "merges.txt") << "";
  EXPECT_TRUE(load_tokenizer(folder).ok()) << "as the other files are there";
  std::filesystem::remove_all(folder);
}

TEST(LoadTokenizer, NamesTheFileWhoseRoleIsWrong) {
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / ("heddle_roles_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, std::string_view text) {
    std::ofstream(folder / name) << text;
  };
  const auto error = [&] { return load_tokenizer_config(folder).status().message(); };
  const std::string map = (folder / "special_tokens_map.json").string();
  write("special_tokens_map.json", R"({"bos_token": 7})");
  EXPECT_EQ(error(), map + ": bos_token is 7; expected a string");
  write("tokenizer_config.json", "{}");
  EXPECT_EQ(error(), map + ": bos_token is 7; expected a string");
  write("special_tokens_map.json", R"(["bos_token"])");
  EXPECT_THAT(error(), HasSubstr(map + ": the document is [\"bos_token\"]; expected an object"));
  write("special_tokens_map.json", R"({"eos_token": {"lstrip": true}})");
  EXPECT_THAT(error(), HasSubstr(map + ": eos_token.content is missing"));
  write("special_tokens_map.json", "{,}");
  EXPECT_THAT(error(), HasSubstr(map + ": not valid JSON at line 1, column 2"));

  // Where it is not used, it stops nothing.
  write("tokenizer_config.json", R"({"bos_token": "<s>", "added_tokens_decoder": {}})");
  const auto config = load_tokenizer_config(folder);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->bos_token, "<s>");
  ASSERT_EQ(config->notes.size(), 1u);
  EXPECT_THAT(config->notes[0], HasSubstr("special_tokens_map.json is not used, because "
                                          "tokenizer_config.json has added_tokens_decoder: not "
                                          "valid JSON"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heddle::tokenizer

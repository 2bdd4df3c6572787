// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tiktoken.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/test_data.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/regex.h"
#include "tokenizer/testing/tokenizer_fixture.h"

namespace heddle::tokenizer {
namespace {

using ::testing::ElementsAre;
using testing::encode;
using ::testing::HasSubstr;
using testing::kPlain;

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += at + i > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * i) & 63];
    }
  }
  return text;
}

std::string line(std::string_view token, int64_t rank) {
  return base64(token) + " " + std::to_string(rank) + "\n";
}

// The 256 bytes as ranks 0 to 255, then the tokens.
std::string file_with(const std::vector<std::string>& tokens) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte)
    text += line(std::string(1, static_cast<char>(byte)), byte);
  for (size_t i = 0; i < tokens.size(); ++i) text += line(tokens[i], static_cast<int64_t>(256 + i));
  return text;
}

std::unique_ptr<Tokenizer> make_tiktoken(std::string_view text, std::string_view config = "{}") {
  auto parsed = parse_tokenizer_config(config);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  auto tokenizer = parse_tiktoken(text, std::move(parsed).value());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return std::move(tokenizer).value();
}

std::string error_of(std::string_view text) {
  const auto tokenizer = parse_tiktoken(text, {});
  return tokenizer.ok() ? "no error" : tokenizer.status().message();
}

TEST(Tiktoken, JoinsWhatMakesTheTokenOfLowestRank) {
  const auto tokenizer = make_tiktoken(file_with({"bc", "ab", "abc", "aa", "aaa", "abcd", "xyz"}));
  EXPECT_THAT(encode(*tokenizer, "abc"), ElementsAre(258));
  EXPECT_THAT(encode(*tokenizer, "abe"), ElementsAre(257, 'e'));
  EXPECT_THAT(encode(*tokenizer, "abcd"), ElementsAre(261)) << "a word that is a token, whole";
  EXPECT_THAT(encode(*tokenizer, "xyz"), ElementsAre(262)) << "also one that no merge makes";
  EXPECT_THAT(encode(*tokenizer, "xyzx"), ElementsAre('x', 'y', 'z', 'x'));
  EXPECT_THAT(encode(*tokenizer, "aaaaa"), ElementsAre(259, 260)) << "the leftmost among equals";
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{258, 'e', 261}, false), "abceabcd");
  EXPECT_EQ(tokenizer->vocab_size(), 263);
}

TEST(Tiktoken, ReadsBytesThatAreNoTextAndLinesOfWindows) {
  std::string text = file_with({"\xE4\xB8", "\xE4\xB8\xAD", std::string("\0\xFF", 2)});
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
    text.insert(at, "\r");
  }
  const auto tokenizer = make_tiktoken(text + "\n");
  EXPECT_THAT(encode(*tokenizer, "中"), ElementsAre(257));
  EXPECT_THAT(encode(*tokenizer, "不"), ElementsAre(256, 0x8D));
  EXPECT_EQ(tokenizer->id_to_token(258), "Āÿ");
}

TEST(Tiktoken, WarningsNameTheFileThatListsAnAddedToken) {
  const auto warnings = [](std::string_view config_json, std::string_view added_tokens) {
    auto config = parse_tokenizer_config(config_json);
    EXPECT_TRUE(config.ok()) << config.status().to_string();
    const Status joined = join_added_tokens(added_tokens, *config);
    EXPECT_TRUE(joined.ok()) << joined.to_string();
    ::testing::internal::CaptureStderr();
    const auto tokenizer = parse_tiktoken(file_with({}), std::move(config).value());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warnings(R"({"added_tokens_decoder": {"7": {"content": "<a\u001b>"}}})", ""),
              HasSubstr("tokenizer_config.json: the added token '<a?>' has the id 7 there"));
  EXPECT_THAT(warnings("{}", R"({"<a>": 7})"),
              HasSubstr("added_tokens.json: the added token '<a>' has the id 7 there"));
}

constexpr std::string_view kKimi = R"({"tokenizer_class": "TikTokenTokenizer",
  "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]",
  "additional_special_tokens": ["<|im_end|>"], "added_tokens_decoder": {
    "257": {"content": "[BOS]", "special": true}, "258": {"content": "[EOS]", "special": true},
    "259": {"content": "<|im_end|>", "special": true},
    "260": {"content": "<|tool_call_begin|>", "special": false},
    "512": {"content": "[PAD]", "special": true}}})";

TEST(Tiktoken, KimisSpecialTokensAreThoseOfTheConfiguration) {
  const auto tokenizer = make_tiktoken(file_with({"hi"}), kKimi);
  EXPECT_EQ(tokenizer->bos_token(), 257);
  EXPECT_EQ(tokenizer->eos_token(), 258);
  EXPECT_EQ(tokenizer->pad_token(), 512);
  EXPECT_EQ(tokenizer->vocab_size(), 513) << "256 ids after the ranks";
  EXPECT_THAT(encode(*tokenizer, "hi<|im_end|><|tool_call_begin|>"), ElementsAre(256, 259, 260));
  EXPECT_THAT(encode(*tokenizer, "<|reserved_token_300|>"), ElementsAre(300));
  EXPECT_TRUE(tokenizer->is_special(300));
  EXPECT_FALSE(tokenizer->is_special(260));
  EXPECT_EQ(tokenizer->id_to_token(511), "<|reserved_token_511|>");
  EXPECT_EQ(encode(*tokenizer, "[BOS]", kPlain).size(), 5u);
}

std::vector<std::string> pieces(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().to_string();
  RegexScratch scratch;
  std::vector<std::string> found;
  Span match;
  for (size_t at = 0; regex->find(text, at, scratch, match); at = match.end) {
    EXPECT_EQ(match.begin, at);
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  }
  return found;
}

// By hand, from the pattern and Unicode's categories and scripts.
TEST(Tiktoken, KimisPatternCutsAtHanAndAtCapitals) {
  const auto cut = [](std::string_view text) { return pieces(kKimiPattern, text); };
  EXPECT_THAT(cut("Hello world, it's"), ElementsAre("Hello", " world", ",", " it's"));
  EXPECT_THAT(cut("helloWorld HTTPServer"), ElementsAre("hello", "World", " HTTPServer"));
  EXPECT_THAT(cut("ABC'S abc'LL"), ElementsAre("ABC'S", " abc'LL"));
  EXPECT_THAT(cut("你好，世界。abc中文def"),
              ElementsAre("你好", "，", "世界", "。abc", "中文", "def"));
  EXPECT_THAT(cut("カタカナと漢字かな"), ElementsAre("カタカナと", "漢字", "かな"));
  EXPECT_THAT(cut("한국어 漢字 한글"), ElementsAre("한국어", " ", "漢字", " 한글"));
  EXPECT_THAT(cut("々人〇"), ElementsAre("々人〇"));
  EXPECT_THAT(cut("12345 67"), ElementsAre("123", "45", " ", "67"));
  EXPECT_THAT(cut("e\u0301a \u0301"), ElementsAre("e\u0301a", " \u0301"));
  EXPECT_THAT(cut("a  b\n\n  c \t"), ElementsAre("a", " ", " b", "\n\n", " ", " c", " \t"));
  EXPECT_THAT(cut("x!\n\ny"), ElementsAre("x", "!\n\n", "y"));
  EXPECT_THAT(cut("🙂👍 ok"), ElementsAre("🙂👍", " ok"));
  EXPECT_THAT(cut("ǅungla ªb"), ElementsAre("ǅungla", " ªb"));
}

TEST(Tiktoken, WithoutAKnownClassSplitsAsLlama3Does) {
  const auto tokenizer = make_tiktoken(file_with({" world", "123", "12"}));
  EXPECT_THAT(encode(*tokenizer, "1234 world"), ElementsAre(257, '4', 256));
  EXPECT_THAT(pieces(kLlama3Pattern, "helloWorld中文a"), ElementsAre("helloWorld中文a"));
}

TEST(Tiktoken, NamesTheLineThatIsWrong) {
  const std::string good = file_with({});
  EXPECT_THAT(error_of(""), HasSubstr("tiktoken.model: the byte 0x00 is not a token"));
  EXPECT_THAT(error_of(good + "YWI="), HasSubstr("line 257: no rank after the token"));
  EXPECT_THAT(error_of(good + "YWI= "), HasSubstr("line 257: the rank '' is not a number"));
  EXPECT_THAT(error_of(good + "YWI= 2x"), HasSubstr("line 257: the rank '2x' is not a number"));
  EXPECT_THAT(error_of(good + "YWI= 256 7"), HasSubstr("the rank '256 7' is not a number"));
  EXPECT_THAT(error_of(good + "YWI= -1"), HasSubstr("-1"));
  EXPECT_THAT(error_of(good + "YWI= 99999999"), HasSubstr("99999999"));
  EXPECT_THAT(error_of(good + "YWI= 9999999999999999999999"), HasSubstr("is not a number"));
  for (const char* const text : {"YWI", "Y=I=", "YW=I", "====", "YWI*", "=", " "}) {
    EXPECT_THAT(error_of(good + text + " 256"), HasSubstr("is not base64")) << text;
  }
  EXPECT_THAT(error_of(good + "\x1b[2J\xFF 256"), HasSubstr("line 257: '?[2J?' is not base64"));
  EXPECT_THAT(error_of(good + std::string(79, 'a') + "中 256"),
              HasSubstr("'" + std::string(79, 'a') + "' is not base64"));
  EXPECT_THAT(error_of(good + "YWI= \x9B\n"), HasSubstr("the rank '?' is not a number"));
  EXPECT_THAT(error_of(good + line("\xE4\xB8", 255)),
              HasSubstr("two tokens have the id 255: '?' and '?\?'"));
  EXPECT_THAT(error_of(good + "YWI= 255"), HasSubstr("line 257: two tokens have the id 255"));
  EXPECT_THAT(error_of(good + "YWI= 256\nYWI= 257"), HasSubstr("line 258: "));
  EXPECT_THAT(error_of(good + "YWI= 257"),
              HasSubstr("no token has the rank 256, though ranks go to 257"));
  EXPECT_THAT(error_of(good + line(std::string(1025, 'a'), 256)),
              HasSubstr("line 257: a token of 1025 bytes, more than the 1024 that are read"));
  EXPECT_EQ(error_of(good + line(std::string(1024, 'a'), 256)), "no error");
  EXPECT_THAT(error_of(good.substr(good.find('\n') + 1)),
              HasSubstr("the byte 0x00 is not a token"));
}

TEST(Tiktoken, IsReadFromAFolderWithoutATokenizerJson) {
  const auto folder = std::filesystem::path(::testing::TempDir()) /
                      ("heddle_tiktoken_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, std::string_view text) {
    std::ofstream(folder / name, std::ios::binary) << text;
  };
  write("tiktoken.model", file_with({"hi"}));
  write("tokenizer_config.json", kKimi);
  const auto tokenizer = load_tokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_THAT(encode(**tokenizer, "hi<|im_end|>"), ElementsAre(256, 259));
  write("tiktoken.model", file_with({"hi"}) + "aGk= 257\n");
  EXPECT_THAT(load_tokenizer(folder).status().message(),
              HasSubstr(folder.string() + ": tiktoken.model: line 258: "));
  write("tokenizer.json", testing::byte_level_json().dump());
  const auto other = load_tokenizer(folder);
  ASSERT_TRUE(other.ok()) << "tokenizer.json counts first";
  EXPECT_EQ((*other)->token_to_id("hello"), testing::kHello);
  std::filesystem::remove_all(folder);
}

TEST(Tiktoken, SurvivesTruncationAtEveryByte) {
  const std::string good = file_with({"ab", "abc"});
  for (size_t length = 0; length < good.size(); ++length) {
    const auto tokenizer = parse_tiktoken(good.substr(0, length), {});
    // Cut within the digits of a rank, the file may be one with another, smaller rank, or good.
    if (!tokenizer.ok()) {
      ASSERT_THAT(tokenizer.status().message(), HasSubstr("tiktoken.model: "));
    }
  }
}

TEST(Tiktoken, TheRanksOfLlama3GiveTheIdsOfItsTokenizerJson) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers");
  const auto expected = load_tokenizer(path / "llama3");
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  std::string ranks;
  for (TokenId id = 0; id < 128000; ++id) {
    std::string bytes;
    (*expected)->append_token_bytes(id, false, bytes);
    ranks += line(bytes, id);
  }
  const auto published = read_whole_file(path / "llama3" / "tokenizer.model");
  ASSERT_TRUE(published.ok());
  EXPECT_TRUE(*published == ranks) << "the published ranks are the ids of tokenizer.json";
  const auto tokenizer = make_tiktoken(ranks);
  const auto golden = read_whole_file(path / "golden_token_ids.json");
  ASSERT_TRUE(golden.ok());
  const auto cases = testing::Json::parse(*golden)["cases"];
  for (const auto& test : cases) {
    const auto text = test["text"].get<std::string>();
    EXPECT_EQ(encode(*tokenizer, text, kPlain), test["ids"]["llama3"].get<std::vector<TokenId>>())
        << text;
  }
  for (const char* const name : {"llama-bpe", "gpt-2", "qwen2"}) {
    const auto lines =
        read_whole_file(path / "gguf-vocab" / (std::string("ggml-vocab-") + name + ".gguf.inp"));
    ASSERT_TRUE(lines.ok());
    EXPECT_EQ(encode(*tokenizer, *lines, kPlain), encode(**expected, *lines, kPlain)) << name;
  }
}

}  // namespace
}  // namespace heddle::tokenizer

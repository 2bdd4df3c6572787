// SPDX-License-Identifier: Apache-2.0
// Whole vocabularies of published models against ids computed by other programs.
#include <algorithm>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {
namespace {

constexpr EncodeOptions kPlainText = {.add_special_tokens = false, .parse_special_tokens = false};

std::string read(const std::filesystem::path& file_path) {
  std::ifstream file(file_path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class GoldenIds : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenIds, EqualThoseOfTheReferenceForAllSixtyStrings) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers");
  const auto loaded = load_tokenizer(path / GetParam());
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = **loaded;
  const auto golden = nlohmann::json::parse(read(path / "golden_token_ids.json"));
  ASSERT_EQ(golden["cases"].size(), 60u);
  for (const auto& test : golden["cases"]) {
    const auto text = test["text"].get<std::string>();
    SCOPED_TRACE(text);
    const auto ids = tokenizer.encode(text, kPlainText);
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    EXPECT_EQ(*ids, test["ids"][GetParam()].get<std::vector<TokenId>>());
    if (std::string_view(GetParam()) != "qwen3") {  // whose NFC may change the text
      EXPECT_EQ(tokenizer.decode(*ids, false), text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GoldenIds,
                         ::testing::Values("qwen3", "llama3", "gpt2", "deepseek-v3"));

struct LineSet {
  const char* vocabulary;
  const char* lines;
};

class GoldenLines : public ::testing::TestWithParam<LineSet> {};

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at = text.find(separator); at != std::string::npos;
       at = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

TEST_P(GoldenLines, EncodeToTheExpectedIds) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers");
  const auto loaded = load_tokenizer(path / GetParam().vocabulary);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const std::string stem = std::string("ggml-vocab-") + GetParam().lines + ".gguf";
  const auto inputs = split(read(path / "gguf-vocab" / (stem + ".inp")), "\n__ggml_vocab_test__\n");
  const auto outputs = split(read(path / "gguf-vocab" / (stem + ".out")), "\n");
  ASSERT_GE(inputs.size(), 40u);
  ASSERT_GE(outputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE(inputs[i]);
    std::istringstream line(outputs[i]);
    std::vector<TokenId> expected;
    for (TokenId id = 0; line >> id;) expected.push_back(id);
    const auto ids = (*loaded)->encode(inputs[i], kPlainText);
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    EXPECT_EQ(*ids, expected);
    if (std::string_view(GetParam().lines) != "qwen2") {
      EXPECT_EQ((*loaded)->decode(*ids, false), inputs[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    LlamaCpp, GoldenLines,
    ::testing::Values(LineSet{"qwen2", "qwen2"}, LineSet{"qwen3", "qwen2"},
                      LineSet{"gpt2", "gpt-2"}, LineSet{"llama3", "llama-bpe"},
                      LineSet{"llama2", "llama-spm"},
                      LineSet{"gguf-vocab/ggml-vocab-qwen2.gguf", "qwen2"},
                      LineSet{"gguf-vocab/ggml-vocab-gpt-2.gguf", "gpt-2"},
                      LineSet{"gguf-vocab/ggml-vocab-llama-spm.gguf", "llama-spm"},
                      LineSet{"gguf-vocab/ggml-vocab-phi-3.gguf", "phi-3"},
                      LineSet{"gguf-vocab/ggml-vocab-deepseek-llm.gguf", "deepseek-llm"}),
    [](const auto& test) {
      std::string name = std::string(test.param.vocabulary) + "_" + test.param.lines;
      for (const char other : {'-', '/', '.'}) {
        std::ranges::replace(name, other, '_');
      }
      return name;
    });

TEST(Llama3Tokenizer, AddsItsFirstTokenThroughTheTemplate) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers/llama3");
  const auto loaded = load_tokenizer(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const auto ids = (*loaded)->encode("Hello world");
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ::testing::ElementsAre(128000, 9906, 1917));
  EXPECT_EQ((*loaded)->vocab_size(), 128256);
}

TEST(Qwen3Tokenizer, CutsChatMarkersOutOfTheText) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers/qwen3");
  const auto loaded = load_tokenizer(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = **loaded;
  EXPECT_EQ(tokenizer.eos_token(), 151645);
  EXPECT_EQ(tokenizer.eos_text(), "<|im_end|>");
  EXPECT_EQ(tokenizer.bos_token(), std::nullopt);
  EXPECT_EQ(tokenizer.vocab_size(), 151669);
  const auto ids = tokenizer.encode("<|im_start|>user\nHello world<|im_end|>");
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ::testing::ElementsAre(151644, 872, 198, 9707, 1879, 151645));
  EXPECT_EQ(tokenizer.decode(*ids, true), "user\nHello world");
  EXPECT_EQ(tokenizer.decode(*ids, false), "<|im_start|>user\nHello world<|im_end|>");
}

TEST(Qwen3Tokenizer, KeepsAddedTokensThatAreNotSpecialAndIgnoresPaddingRows) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers/qwen3");
  const auto loaded = load_tokenizer(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = **loaded;
  const std::vector<TokenId> ids = {151667, 9707, 151668, 151669, 151935, -1, 1 << 30, 151645};
  EXPECT_EQ(tokenizer.decode(ids, true), "<think>Hello</think>");
  EXPECT_FALSE(tokenizer.is_special(151667));
  EXPECT_TRUE(tokenizer.is_special(151645));
  EXPECT_EQ(tokenizer.id_to_token(1879), "Ġworld");
  EXPECT_EQ(tokenizer.token_to_id("Ġworld"), 1879);
  EXPECT_EQ(tokenizer.id_to_token(151935), "");
}

TEST(DeepSeekV3Tokenizer, ReadsItsMarkersWithFullwidthBars) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers/deepseek-v3");
  const auto loaded = load_tokenizer(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = **loaded;
  EXPECT_EQ(tokenizer.bos_token(), 0);
  EXPECT_EQ(tokenizer.eos_token(), 1);
  EXPECT_EQ(tokenizer.token_to_id("<｜User｜>"), 128803);
  const auto ids = tokenizer.encode("<｜begin▁of▁sentence｜><｜User｜>");
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ::testing::ElementsAre(0, 128803));
}

TEST(Llama2Tokenizer, AddsBosAndHidesTheLeadingSpace) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/tokenizers/llama2");
  const auto loaded = load_tokenizer(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = **loaded;
  const auto ids = tokenizer.encode("Hello world");
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ::testing::ElementsAre(1, 15043, 3186));
  EXPECT_EQ(tokenizer.decode(*ids, true), "Hello world");
  EXPECT_EQ(tokenizer.eos_token(), 2);
  EXPECT_EQ(tokenizer.vocab_size(), 32000);
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{3 + 0xE2, 3 + 0x82, 3 + 0xAC}, true), "€");
}

}  // namespace
}  // namespace heddle::tokenizer

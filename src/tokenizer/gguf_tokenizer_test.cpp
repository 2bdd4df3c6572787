// SPDX-License-Identifier: Apache-2.0
// Small vocabularies as GGUF files have them; golden_ids_test.cpp reads published ones.
#include "tokenizer/gguf_tokenizer.h"

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/gguf_fixture.h"

namespace heddle::tokenizer {
namespace {

using checkpoint::testing::as_bytes;
using checkpoint::testing::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr EncodeOptions kGgufTextAlone{.add_special_tokens = false};

Result<std::unique_ptr<Tokenizer>> gguf_tokenizer_of(const GgufWriter& writer) {
  const std::string file = writer.file();
  HEDDLE_ASSIGN_OR_RETURN(const auto header, checkpoint::parse_gguf_header(as_bytes(file)));
  return make_gguf_tokenizer(header.metadata);
}

std::string gguf_tokenizer_error(const GgufWriter& writer) {
  return gguf_tokenizer_of(writer).status().message();
}

GgufWriter small_bpe(const std::string& pre = "qwen2") {
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2");
  writer.text("tokenizer.ggml.pre", pre);
  writer.texts("tokenizer.ggml.tokens",
               {"a", "b", "ab", "Ġ", "<|im_end|>", "<think>", "[PAD6]", "<unused>"});
  writer.integers("tokenizer.ggml.token_type", {1, 1, 1, 1, 3, 4, 4, 5});
  writer.texts("tokenizer.ggml.merges", {"a b"});
  writer.u32("tokenizer.ggml.eos_token_id", 4);
  writer.u32("tokenizer.ggml.bos_token_id", 4);
  return writer;
}

GgufWriter small_sentencepiece() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "<turn>"};
  std::vector<int32_t> kinds = {2, 3, 3, 1, 1, 1, 1, 1, 4};
  std::vector<float> scores = {0, 0, 0, -4, -5, -6, -1, -2, 0};
  for (int byte = 0; byte < 256; ++byte) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", byte);
    tokens.emplace_back(name.data());
    kinds.push_back(6);
    scores.push_back(0);
  }
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "llama");
  writer.texts("tokenizer.ggml.tokens", tokens);
  writer.integers("tokenizer.ggml.token_type", kinds);
  writer.numbers("tokenizer.ggml.scores", scores);
  writer.u32("tokenizer.ggml.bos_token_id", 1);
  writer.u32("tokenizer.ggml.eos_token_id", 2);
  writer.u32("tokenizer.ggml.unknown_token_id", 0);
  return writer;
}

TEST(GgufTokenizer, ReadsByteLevelVocabularies) {
  const auto tokenizer = gguf_tokenizer_of(small_bpe());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_THAT((*tokenizer)->encode("ab a<|im_end|><think>").value(), ElementsAre(2, 3, 0, 4, 5));
  EXPECT_EQ((*tokenizer)->decode(std::vector<TokenId>{2, 3, 0, 5}, true), "ab a<think>");
  EXPECT_TRUE((*tokenizer)->is_special(4));
  EXPECT_FALSE((*tokenizer)->is_special(5));
  EXPECT_EQ((*tokenizer)->eos_token(), 4);
  EXPECT_EQ((*tokenizer)->token_to_id("[PAD6]"), std::nullopt);  // a row without a token
  EXPECT_EQ((*tokenizer)->token_to_id("<unused>"), std::nullopt);
}

TEST(GgufTokenizer, PutsBosInFrontWhereTheFileOrTheKindSaysSo) {
  EXPECT_THAT((*gguf_tokenizer_of(small_bpe("llama-bpe")))->encode("ab").value(),
              ElementsAre(4, 2));
  GgufWriter off = small_bpe("llama-bpe");
  off.boolean("tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT((*gguf_tokenizer_of(off))->encode("ab").value(), ElementsAre(2));
  GgufWriter both = small_bpe();
  both.boolean("tokenizer.ggml.add_bos_token", true);
  both.boolean("tokenizer.ggml.add_eos_token", true);
  EXPECT_THAT((*gguf_tokenizer_of(both))->encode("ab").value(), ElementsAre(4, 2, 4));
}

TEST(GgufTokenizer, ReadsSentencePieceVocabularies) {
  const auto tokenizer = gguf_tokenizer_of(small_sentencepiece());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_THAT((*tokenizer)->encode("ab").value(), ElementsAre(1, 7));
  EXPECT_THAT((*tokenizer)->encode("ab<turn>b\n", kGgufTextAlone).value(),
              ElementsAre(7, 8, 3, 5, 9 + '\n'));
  EXPECT_EQ((*tokenizer)->decode(std::vector<TokenId>{7, 3, 5}, false), "ab b");
  GgufWriter bare = small_sentencepiece();
  bare.boolean("tokenizer.ggml.add_space_prefix", false);
  bare.boolean("tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT((*gguf_tokenizer_of(bare))->encode("ab").value(), ElementsAre(6));
}

TEST(GgufTokenizer, EveryWayToSplitWordsCompilesAndKeepsTheText) {
  for (const char* pre : {"gpt-2",          "llama-bpe",   "llama3",
                          "llama-v3",       "falcon3",     "smaug-bpe",
                          "dbrx",           "qwen2",       "deepseek-r1-qwen",
                          "smollm",         "starcoder",   "refact",
                          "gpt-4o",         "tekken",      "deepseek-llm",
                          "deepseek-coder", "deepseek-v3", "qwen35",
                          "glm4",           "chatglm-bpe", "lfm2",
                          "falcon-h1",      "pixtral",     "olmo",
                          "seed-coder",     "command-r",   "exaone4",
                          "minimax-m2",     "llama4",      "kimi-k2"}) {
    const auto tokenizer = gguf_tokenizer_of(small_bpe(pre));
    ASSERT_TRUE(tokenizer.ok()) << pre << ": " << tokenizer.status().to_string();
    EXPECT_THAT((*tokenizer)->encode("ab ab", kGgufTextAlone).value(), ElementsAre(2, 3, 2)) << pre;
  }
}

// Every byte as GPT-2's vocabularies spell it: printable ones as they are in Latin-1, the others as
// the characters from U+0100 on.
std::vector<std::string> spelt_bytes() {
  std::vector<std::string> spelt;
  unsigned others = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const unsigned code = is_plain ? byte : 256 + others++;
    if (code < 128) {
      spelt.emplace_back(1, static_cast<char>(code));
    } else {
      spelt.push_back(
          {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))});
    }
  }
  return spelt;
}

TEST(GgufTokenizer, RanksTokensOfFilesWithoutMerges) {
  std::vector<std::string> tokens = spelt_bytes();
  tokens.insert(tokens.end(), {"bc", "ab", "<|end|>"});
  std::vector<int32_t> kinds(tokens.size(), 1);
  kinds.back() = 3;
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2");
  writer.text("tokenizer.ggml.pre", "kimi-k2");
  writer.texts("tokenizer.ggml.tokens", tokens);
  writer.integers("tokenizer.ggml.token_type", kinds);
  const auto tokenizer = gguf_tokenizer_of(writer);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_THAT((*tokenizer)->encode("abc<|end|>", kGgufTextAlone).value(),
              ElementsAre('a', 256, 258));  // "bc" has the lower id
}

TEST(GgufTokenizer, ReadsMergesOfCharacters) {
  std::vector<std::string> tokens = {"<pad>", "<eos>", "<bos>", "a",       "b", "▁",
                                     "▁a",    "ab",    "▁▁",    "<turn|>", "\n"};
  std::vector<int32_t> kinds = {3, 3, 3, 1, 1, 1, 1, 1, 1, 4, 1};
  for (int byte = 0; byte < 256; ++byte) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", byte);
    tokens.emplace_back(name.data());
    kinds.push_back(6);
  }
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gemma4");
  writer.texts("tokenizer.ggml.tokens", tokens);
  writer.integers("tokenizer.ggml.token_type", kinds);
  writer.texts("tokenizer.ggml.merges", {"▁ a", "▁ ▁", "a b"});
  writer.u32("tokenizer.ggml.bos_token_id", 2);
  const auto tokenizer = gguf_tokenizer_of(writer);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  // A merge of a higher rank goes first: "▁a" before "ab". A character without a token is bytes.
  EXPECT_THAT((*tokenizer)->encode("ab ab<turn|>\né").value(),
              ElementsAre(2, 7, 6, 4, 9, 10, 11 + 0xc3, 11 + 0xa9));
  EXPECT_EQ((*tokenizer)->decode(std::vector<TokenId>{7, 6, 4, 9, 10, 11 + 0xc3, 11 + 0xa9}, true),
            "ab ab<turn|>\né");
}

TEST(GgufTokenizer, NamesWhatIsNotServed) {
  EXPECT_THAT(gguf_tokenizer_error(small_bpe("viking")),
              HasSubstr("tokenizer.ggml.pre is 'viking', a way to split words that is not served"));
  EXPECT_THAT(gguf_tokenizer_error(small_bpe("default")), HasSubstr("no tokenizer.ggml.pre"));
  GgufWriter t5;
  t5.text("tokenizer.ggml.model", "t5");
  t5.texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(gguf_tokenizer_error(t5), HasSubstr("tokenizer.ggml.model is 't5'; served are gpt2"));
  GgufWriter empty;
  empty.text("tokenizer.ggml.model", "gpt2");
  EXPECT_THAT(gguf_tokenizer_error(empty), HasSubstr("no tokenizer.ggml.tokens"));
}

TEST(GgufTokenizer, ListsThatDoNotFitEachOtherAreErrors) {
  GgufWriter kinds;
  kinds.text("tokenizer.ggml.model", "gpt2");
  kinds.texts("tokenizer.ggml.tokens", {"a", "b"});
  kinds.integers("tokenizer.ggml.token_type", {1});
  EXPECT_THAT(gguf_tokenizer_error(kinds), HasSubstr("token_type has 1 entries"));
  GgufWriter role = small_bpe();
  role.u32("tokenizer.ggml.padding_token_id", 8);
  EXPECT_THAT(gguf_tokenizer_error(role),
              HasSubstr("padding_token_id is 8, but there are 8 tokens"));
  GgufWriter merge;
  merge.text("tokenizer.ggml.model", "gpt2");
  merge.text("tokenizer.ggml.pre", "gpt-2");
  merge.texts("tokenizer.ggml.tokens", {"a", "b"});
  merge.texts("tokenizer.ggml.merges", {"a b"});
  EXPECT_THAT(gguf_tokenizer_error(merge), HasSubstr("tokenizer.ggml.merges[0]"));
  GgufWriter scores = small_sentencepiece();
  scores.numbers("tokenizer.ggml.scores2", {1});
  EXPECT_TRUE(gguf_tokenizer_of(scores).ok());
  GgufWriter none;
  none.text("tokenizer.ggml.model", "llama");
  none.texts("tokenizer.ggml.tokens", {"<unk>"});
  EXPECT_THAT(gguf_tokenizer_error(none), HasSubstr("tokenizer.ggml.scores has 0 entries"));
}

TEST(GgufTokenizer, ChatTemplatesHaveNames) {
  GgufWriter writer;
  writer.text("tokenizer.chat_template", "A");
  writer.text("tokenizer.chat_template.tool_use", "B");
  writer.texts("tokenizer.chat_templates", {"tool_use"});
  const std::string file = writer.file();
  const auto header = checkpoint::parse_gguf_header(as_bytes(file)).value();
  EXPECT_THAT(gguf_chat_templates(header.metadata).value(),
              ElementsAre(std::pair("default", "A"), std::pair("tool_use", "B")));
}

}  // namespace
}  // namespace heddle::tokenizer

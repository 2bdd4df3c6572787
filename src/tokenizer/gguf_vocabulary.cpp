// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/gguf_vocabulary.h"

#include <string>
#include <utility>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {

using checkpoint::GgufMetadata;

namespace {

constexpr std::string_view kHanKana = R"([一-龥぀-ゟ゠-ヿ]+)";
constexpr std::string_view kHanHangul = R"([一-龥ࠀ-一가-퟿]+)";

// The patterns of o200k (gpt-oss), and of Mistral's tekken, which splits numbers into single digits
// and has no endings.
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Qwen2's pattern with marks counted as letters, and the pattern of Seed's models.
constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseek3Pattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr GgufWordSplit kWordSplits[] = {
    {.name = "gpt-2", .patterns = {kGpt2Pattern}},
    {.name = "llama-bpe", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon-h1", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "lfm2", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "glm4", .patterns = {kLlama3Pattern}},
    {.name = "chatglm-bpe", .patterns = {kLlama3Pattern}},
    {.name = "falcon3", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "smaug-bpe", .patterns = {kLlama3Pattern}},
    {.name = "dbrx", .patterns = {kLlama3Pattern}},
    {.name = "qwen2", .patterns = {kQwen2Pattern}, .nfc = true},
    {.name = "deepseek-r1-qwen", .patterns = {kQwen2Pattern}},
    {.name = "qwen35", .patterns = {kQwen35Pattern}, .nfc = true},
    {.name = "seed-coder", .patterns = {kSeedPattern}},
    {.name = "command-r", .patterns = {kDigitPattern, kGpt2Pattern}},
    {.name = "exaone4", .patterns = {kGpt2Pattern}},
    {.name = "olmo", .patterns = {kGpt2Pattern}},
    {.name = "kimi-k2", .patterns = {kKimiPattern}, .ranks_tokens = true},
    {.name = "smollm", .patterns = {kDigitPattern, kGpt2Pattern}},
    {.name = "starcoder", .patterns = {kDigitPattern, kGpt2Pattern}},
    {.name = "refact", .patterns = {kDigitPattern, kGpt2Pattern}},
    {.name = "gpt-4o", .patterns = {kO200kPattern}},
    {.name = "llama4", .patterns = {kO200kPattern}},
    {.name = "minimax-m2", .patterns = {kO200kPattern}},
    {.name = "tekken", .patterns = {kTekkenPattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "pixtral", .patterns = {kTekkenPattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "deepseek-llm",
     .patterns = {R"([\r\n])", R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)", R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
                  R"(\s+$)", kHanHangul, kDigitPattern}},
    {.name = "deepseek-coder",
     .patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHanHangul, kDigitPattern}},
    {.name = "deepseek-v3", .patterns = {R"(\p{N}{1,3})", kHanKana, kDeepseek3Pattern}},
};

}  // namespace

Result<GgufWordSplit> find_gguf_word_split(const GgufMetadata& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const auto name, metadata.text("tokenizer.ggml.pre"));
  if (!name || *name == "default") {
    return unimplemented(
        "the metadata has no tokenizer.ggml.pre, so the way to split words is unknown: the file is "
        "of early 2024 or before; download a newer conversion of the model");
  }
  std::vector<std::string_view> served;
  for (const GgufWordSplit& split : kWordSplits) {
    if (split.name == *name) return split;
    served.push_back(split.name);
  }
  return unimplemented(
      fmt::format("tokenizer.ggml.pre is '{}', a way to split words that is not served; served are "
                  "{}. The model's safetensors files may be served all the same",
                  *name, fmt::join(served, ", ")));
}

Result<GgufVocabulary> read_gguf_vocabulary(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  HEDDLE_ASSIGN_OR_RETURN(auto tokens, metadata.texts("tokenizer.ggml.tokens"));
  HEDDLE_ASSIGN_OR_RETURN(auto kinds, metadata.integers("tokenizer.ggml.token_type"));
  if (!tokens || tokens->empty()) {
    return data_loss("the metadata has no tokenizer.ggml.tokens: a file without a vocabulary");
  }
  if (tokens->size() > static_cast<size_t>(kMaxTokenId)) {
    return data_loss(fmt::format("tokenizer.ggml.tokens has {} entries, more than {}",
                                 tokens->size(), kMaxTokenId));
  }
  vocabulary.tokens = *std::move(tokens);
  vocabulary.kinds = kinds
                         ? *std::move(kinds)
                         : std::vector<int64_t>(vocabulary.tokens.size(), GgufVocabulary::kNormal);
  if (vocabulary.kinds.size() != vocabulary.tokens.size()) {
    return data_loss(fmt::format(
        "tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens has {}; download the file "
        "again",
        vocabulary.kinds.size(), vocabulary.tokens.size()));
  }
  return vocabulary;
}

}  // namespace heddle::tokenizer

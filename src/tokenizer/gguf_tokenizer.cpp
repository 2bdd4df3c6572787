// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "checkpoint/gguf_model.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace heddle::tokenizer {

namespace {

using checkpoint::GgufMetadata;

// Kinds of tokens. SentencePiece has the same numbers.
enum TokenKind : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefinedToken = 4,
  kUnused = 5,
};

// The ways to split words that `pre` names: patterns whose matches are pieces, one after the other
// applied to what those before left whole. Empty: the words of GPT-2.
struct WordSplit {
  std::string_view name;
  std::array<std::string_view, 6> patterns = {};
  bool nfc = false;            // the hub's tokenizer composes characters first
  bool ignore_merges = false;  // a word that is a token is taken whole
  bool adds_bos = false;       // where the file does not say
};

constexpr std::string_view kHanKana = R"([一-龥぀-ゟ゠-ヿ]+)";
constexpr std::string_view kHanHangul = R"([一-龥ࠀ-一가-퟿]+)";

// The patterns of o200k (gpt-oss) and of Mistral's tekken, which has single digits and no endings.
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseek3Pattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr WordSplit kWordSplits[] = {
    {.name = "gpt-2", .patterns = {kGpt2Pattern}},
    {.name = "llama-bpe", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon3", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "smaug-bpe", .patterns = {kLlama3Pattern}},
    {.name = "dbrx", .patterns = {kLlama3Pattern}},
    {.name = "qwen2", .patterns = {kQwen2Pattern}, .nfc = true},
    {.name = "deepseek-r1-qwen", .patterns = {kQwen2Pattern}},
    {.name = "smollm", .patterns = {kDigitPattern, kGpt2Pattern}},
    {.name = "starcoder", .patterns = {kDigitPattern, kGpt2Pattern}},
    {.name = "refact", .patterns = {kDigitPattern, kGpt2Pattern}},
    {.name = "gpt-4o", .patterns = {kO200kPattern}},
    {.name = "tekken", .patterns = {kTekkenPattern}, .ignore_merges = true, .adds_bos = true},
    {.name = "deepseek-llm",
     .patterns = {R"([\r\n])", R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)", R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
                  R"(\s+$)", kHanHangul, kDigitPattern}},
    {.name = "deepseek-coder",
     .patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHanHangul, kDigitPattern}},
    {.name = "deepseek-v3", .patterns = {R"(\p{N}{1,3})", kHanKana, kDeepseek3Pattern}},
};

Result<WordSplit> find_word_split(const GgufMetadata& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const auto name, metadata.text("tokenizer.ggml.pre"));
  if (!name || *name == "default") {
    return unimplemented(
        "the metadata has no tokenizer.ggml.pre, so the way to split words is unknown: the file is "
        "of early 2024 or before; download a newer conversion of the model");
  }
  std::vector<std::string_view> served;
  for (const WordSplit& split : kWordSplits) {
    if (split.name == *name) return split;
    served.push_back(split.name);
  }
  return unimplemented(
      fmt::format("tokenizer.ggml.pre is '{}', a way to split words that is not served; served are "
                  "{}. The model's safetensors files may be served all the same",
                  *name, fmt::join(served, ", ")));
}

// All lists of a vocabulary, as long as each other.
struct GgufVocabulary {
  std::vector<std::string_view> tokens;
  std::vector<int64_t> kinds;

  // Rows of the embedding without a token have such a name in older conversions.
  [[nodiscard]] bool is_padding(size_t id) const {
    return kinds[id] == kUnused || tokens[id] == fmt::format("[PAD{}]", id);
  }
};

Result<GgufVocabulary> read_vocabulary(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  HEDDLE_ASSIGN_OR_RETURN(auto tokens, metadata.texts("tokenizer.ggml.tokens"));
  HEDDLE_ASSIGN_OR_RETURN(auto kinds, metadata.integers("tokenizer.ggml.token_type"));
  if (!tokens || tokens->empty()) {
    return data_loss("the metadata has no tokenizer.ggml.tokens: a file without a vocabulary");
  }
  if (tokens->size() > static_cast<size_t>(kMaxTokenId)) {
    return data_loss(fmt::format("tokenizer.ggml.tokens has {} entries; the limit is {}",
                                 tokens->size(), kMaxTokenId));
  }
  vocabulary.tokens = *std::move(tokens);
  vocabulary.kinds =
      kinds ? *std::move(kinds) : std::vector<int64_t>(vocabulary.tokens.size(), kNormal);
  if (vocabulary.kinds.size() != vocabulary.tokens.size()) {
    return data_loss(fmt::format(
        "tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens has {}; download the file "
        "again",
        vocabulary.kinds.size(), vocabulary.tokens.size()));
  }
  return vocabulary;
}

Result<std::optional<std::string>> token_of_role(const GgufMetadata& metadata,
                                                 const GgufVocabulary& vocabulary,
                                                 std::string_view role) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", role);
  HEDDLE_ASSIGN_OR_RETURN(const auto id, metadata.integer(key));
  constexpr int64_t kNone = 0xffffffff;  // -1 in the 32 bits of the file
  if (!id || *id == kNone || *id == -1) return std::optional<std::string>();
  if (*id < 0 || *id >= static_cast<int64_t>(vocabulary.tokens.size())) {
    return data_loss(
        fmt::format("{} is {}, but there are {} tokens", key, *id, vocabulary.tokens.size()));
  }
  return std::optional<std::string>(vocabulary.tokens[static_cast<size_t>(*id)]);
}

Result<TokenizerConfig> read_config(const GgufMetadata& metadata,
                                    const GgufVocabulary& vocabulary) {
  TokenizerConfig config;
  HEDDLE_ASSIGN_OR_RETURN(config.bos_token, token_of_role(metadata, vocabulary, "bos"));
  HEDDLE_ASSIGN_OR_RETURN(config.eos_token, token_of_role(metadata, vocabulary, "eos"));
  HEDDLE_ASSIGN_OR_RETURN(config.pad_token, token_of_role(metadata, vocabulary, "padding"));
  HEDDLE_ASSIGN_OR_RETURN(const auto unknown, token_of_role(metadata, vocabulary, "unknown"));
  HEDDLE_ASSIGN_OR_RETURN(config.add_bos_token, metadata.boolean("tokenizer.ggml.add_bos_token"));
  HEDDLE_ASSIGN_OR_RETURN(config.add_eos_token, metadata.boolean("tokenizer.ggml.add_eos_token"));
  for (const auto& [name, token] :
       {std::pair("bos_token", &config.bos_token), std::pair("eos_token", &config.eos_token),
        std::pair("pad_token", &config.pad_token)}) {
    if (*token) config.special_tokens.emplace_back(name, **token);
  }
  if (unknown) config.special_tokens.emplace_back("unk_token", *unknown);
  return config;
}

Result<std::unique_ptr<Tokenizer>> make_bpe(const GgufMetadata& metadata,
                                            const GgufVocabulary& vocabulary,
                                            TokenizerConfig config) {
  HEDDLE_ASSIGN_OR_RETURN(const WordSplit split, find_word_split(metadata));
  HEDDLE_ASSIGN_OR_RETURN(const auto merges, metadata.texts("tokenizer.ggml.merges"));
  if (!merges) return data_loss("the metadata has no tokenizer.ggml.merges");
  BpeBuilder builder(/*byte_level=*/true);
  std::vector<AddedToken> added;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (vocabulary.is_padding(id)) continue;
    const int64_t kind = vocabulary.kinds[id];
    if (kind == kControl || kind == kUserDefinedToken || kind == kUnknown) {
      added.push_back({.id = static_cast<TokenId>(id),
                       .content = std::string(token),
                       .special = kind != kUserDefinedToken});
      continue;
    }
    HEDDLE_RETURN_IF_ERROR(builder.add_token(token, static_cast<int64_t>(id))
                               .with_context(fmt::format("tokenizer.ggml.tokens[{}]", id)));
  }
  builder.reserve_merges(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(builder.add_merge_line((*merges)[i])
                               .with_context(fmt::format("tokenizer.ggml.merges[{}]", i)));
  }
  PreTokenizer pre_tokenizer;
  for (const std::string_view pattern : split.patterns) {
    if (pattern.empty()) continue;
    HEDDLE_ASSIGN_OR_RETURN(Regex regex, Regex::compile(pattern));
    pre_tokenizer.add(SplitStep{.pattern = std::move(regex)});
  }
  Normalizer normalizer;
  if (split.nfc) normalizer.add(NormalForm::kNfc);
  if (!config.add_bos_token) config.add_bos_token = split.adds_bos;
  return BpeTokenizer::create(
      {.model = std::move(builder).build({.ignore_merges = split.ignore_merges}),
       .listed_tokens = std::move(added),
       .listed_in = "the GGUF file",
       .added_tokens = {},
       .normalizer = std::move(normalizer),
       .pre_tokenizer = std::move(pre_tokenizer),
       .decoder = {},
       .prefix = {},
       .suffix = {}},
      config);
}

// ---- A SentencePiece model in memory (sentencepiece_model.h has the fields' numbers) ----

void append_varint(uint64_t value, std::string& out) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<char>(value | 128));
  out.push_back(static_cast<char>(value));
}

void append_number(uint32_t field, uint64_t value, std::string& out) {
  append_varint((field << 3) | kVarint, out);
  append_varint(value, out);
}

void append_bytes(uint32_t field, std::string_view bytes, std::string& out) {
  append_varint((field << 3) | kLengthDelimited, out);
  append_varint(bytes.size(), out);
  out.append(bytes);
}

void append_float(uint32_t field, float value, std::string& out) {
  append_varint((field << 3) | kFixed32, out);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(bits >> shift));
}

// The settings of the model's trainer: its kind, and the ids of roles.
std::string trainer_spec(int64_t unknown) {
  constexpr uint32_t kByteFallback = 35;
  constexpr uint32_t kUnkId = 40;
  std::string spec;
  append_number(kModelType, kBpe, spec);
  append_number(kByteFallback, 1, spec);
  append_number(kUnkId, static_cast<uint64_t>(unknown), spec);
  for (uint32_t role = kUnkId + 1; role <= kUnkId + 3;
       ++role) {  // BOS, EOS, padding: by their names
    append_number(role, ~uint64_t{0}, spec);
  }
  return spec;
}

std::string normalizer_spec(bool adds_space, bool removes_spaces) {
  constexpr uint32_t kName = 1;
  constexpr uint32_t kAddDummyPrefix = 3;
  std::string spec;
  append_bytes(kName, "identity", spec);
  append_number(kAddDummyPrefix, adds_space ? 1 : 0, spec);
  append_number(kRemoveExtraWhitespaces, removes_spaces ? 1 : 0, spec);
  append_number(kEscapeWhitespaces, 1, spec);
  return spec;
}

Result<std::unique_ptr<Tokenizer>> make_sentencepiece(const GgufMetadata& metadata,
                                                      const GgufVocabulary& vocabulary,
                                                      TokenizerConfig config) {
  constexpr uint32_t kPieceScore = 2;
  constexpr std::string_view kMark = "▁";  // a space in pieces
  HEDDLE_ASSIGN_OR_RETURN(const auto scores, metadata.numbers("tokenizer.ggml.scores"));
  if (!scores || scores->size() != vocabulary.tokens.size()) {
    return data_loss(fmt::format("tokenizer.ggml.scores has {} entries, tokenizer.ggml.tokens {}",
                                 scores ? scores->size() : 0, vocabulary.tokens.size()));
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto unknown, metadata.integer("tokenizer.ggml.unknown_token_id"));
  HEDDLE_ASSIGN_OR_RETURN(const auto adds_space,
                          metadata.boolean("tokenizer.ggml.add_space_prefix"));
  HEDDLE_ASSIGN_OR_RETURN(const auto removes_spaces,
                          metadata.boolean("tokenizer.ggml.remove_extra_whitespaces"));
  const int64_t unknown_id = unknown.value_or(0);
  std::string model;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    int64_t kind = vocabulary.kinds[id];
    if (static_cast<int64_t>(id) == unknown_id) {
      kind = kUnknown;
    } else if (kind == kUnknown || kind < kNormal) {
      kind = kUnused;  // the library takes one unknown piece
    }
    std::string piece;
    append_bytes(kPieceText, token, piece);
    append_float(kPieceScore, static_cast<float>((*scores)[id]), piece);
    append_number(kPieceType, static_cast<uint64_t>(kind), piece);
    append_bytes(kPieces, piece, model);
    // The hub lists these as added tokens; those with a space's mark are pieces of the model.
    if (kind != kUserDefinedToken || token.find(kMark) != std::string_view::npos) continue;
    config.added_tokens.push_back({.id = static_cast<TokenId>(id), .content = std::string(token)});
  }
  append_bytes(kTrainerSpec, trainer_spec(unknown_id), model);
  append_bytes(kNormalizerSpec,
               normalizer_spec(adds_space.value_or(true), removes_spaces.value_or(false)), model);
  return parse_sentencepiece(model, config);
}

}  // namespace

Result<TokenizerConfig> gguf_tokenizer_config(const GgufMetadata& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, read_vocabulary(metadata));
  return read_config(metadata, vocabulary);
}

Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const GgufMetadata& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const auto model, metadata.text("tokenizer.ggml.model"));
  HEDDLE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, read_vocabulary(metadata));
  HEDDLE_ASSIGN_OR_RETURN(TokenizerConfig config, read_config(metadata, vocabulary));
  if (model && *model == "gpt2") return make_bpe(metadata, vocabulary, std::move(config));
  if (model && *model == "llama")
    return make_sentencepiece(metadata, vocabulary, std::move(config));
  return unimplemented(
      fmt::format("tokenizer.ggml.model is '{}'; served are gpt2 (BPE) and llama (SentencePiece)",
                  model.value_or("")));
}

Result<TokenizerConfig> load_gguf_tokenizer_config(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const auto model, checkpoint::GgufModel::open(path));
  Result<TokenizerConfig> config = gguf_tokenizer_config(model.metadata());
  if (!config.ok()) return config.status().with_context(path.string());
  return config;
}

Result<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const auto model, checkpoint::GgufModel::open(path));
  Result<std::unique_ptr<Tokenizer>> tokenizer = make_gguf_tokenizer(model.metadata());
  if (!tokenizer.ok()) return tokenizer.status().with_context(path.string());
  return tokenizer;
}

Result<std::vector<std::pair<std::string, std::string>>> gguf_chat_templates(
    const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  std::vector<std::pair<std::string, std::string>> templates;
  HEDDLE_ASSIGN_OR_RETURN(const auto own, metadata.text(kKey));
  if (own) templates.emplace_back("default", *own);
  for (const auto& [key, value] : metadata.values()) {
    if (!key.starts_with(kKey) || key.size() <= kKey.size() || key[kKey.size()] != '.') continue;
    HEDDLE_ASSIGN_OR_RETURN(const auto named, metadata.text(key));
    templates.emplace_back(key.substr(kKey.size() + 1), *named);
  }
  return templates;
}

}  // namespace heddle::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "checkpoint/gguf_model.h"
#include "core/remedy.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/gguf_vocabulary.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace heddle::tokenizer {

namespace {

using checkpoint::GgufMetadata;

Result<std::optional<std::string>> token_of_role(const GgufMetadata& metadata,
                                                 const GgufVocabulary& vocabulary,
                                                 std::string_view role) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", role);
  HEDDLE_ASSIGN_OR_RETURN(const auto id, metadata.integer(key));
  constexpr int64_t kNone = 0xffffffff;  // -1 as a 32-bit number in the file
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

// Adds all tokens. Those that take no part in merges are returned as added tokens.
Result<std::vector<AddedToken>> add_tokens(const GgufVocabulary& vocabulary, BpeBuilder& builder) {
  std::vector<AddedToken> added;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (vocabulary.is_padding(id)) continue;
    if (vocabulary.is_added(id)) {
      added.push_back({.id = static_cast<TokenId>(id),
                       .content = std::string(token),
                       .special = vocabulary.kinds[id] != GgufVocabulary::kUserDefined});
      continue;
    }
    HEDDLE_RETURN_IF_ERROR(builder.add_token(token, static_cast<int64_t>(id))
                               .with_context(fmt::format("tokenizer.ggml.tokens[{}]", id)));
  }
  return added;
}

Status add_merges(const GgufMetadata& metadata, bool ranks_tokens, BpeBuilder& builder) {
  HEDDLE_ASSIGN_OR_RETURN(const auto merges, metadata.texts("tokenizer.ggml.merges"));
  if (!merges && ranks_tokens) return builder.add_ranked_merges();
  if (!merges) return data_loss("the metadata has no tokenizer.ggml.merges");
  builder.reserve_merges(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(builder.add_merge_line((*merges)[i])
                               .with_context(fmt::format("tokenizer.ggml.merges[{}]", i)));
  }
  return ok_status();
}

Result<std::unique_ptr<Tokenizer>> make_bpe(const GgufMetadata& metadata,
                                            const GgufVocabulary& vocabulary,
                                            TokenizerConfig config) {
  HEDDLE_ASSIGN_OR_RETURN(const GgufWordSplit split, find_gguf_word_split(metadata));
  BpeBuilder builder(/*byte_level=*/true);
  HEDDLE_ASSIGN_OR_RETURN(std::vector<AddedToken> added, add_tokens(vocabulary, builder));
  HEDDLE_RETURN_IF_ERROR(add_merges(metadata, split.ranks_tokens, builder));
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

// Makes a BPE tokenizer whose merges work on the characters of the whole text, with spaces replaced
// by marks; a character that is no token becomes byte tokens.
Result<std::unique_ptr<Tokenizer>> make_character_bpe(const GgufMetadata& metadata,
                                                      const GgufVocabulary& vocabulary,
                                                      TokenizerConfig config) {
  BpeBuilder builder(/*byte_level=*/false);
  HEDDLE_ASSIGN_OR_RETURN(std::vector<AddedToken> added, add_tokens(vocabulary, builder));
  HEDDLE_RETURN_IF_ERROR(add_merges(metadata, /*ranks_tokens=*/false, builder));
  Normalizer normalizer;
  HEDDLE_ASSIGN_OR_RETURN(Regex space, Regex::compile(" "));
  normalizer.add(ReplaceStep{.pattern = std::move(space), .content = std::string(kGgufSpaceMark)});
  if (!config.add_bos_token) config.add_bos_token = true;
  return BpeTokenizer::create(
      {.model = std::move(builder).build({.byte_fallback = true, .fuse_unknown = true}),
       .listed_tokens = std::move(added),
       .listed_in = "the GGUF file",
       .added_tokens = {},
       .normalizer = std::move(normalizer),
       .pre_tokenizer = {},
       .decoder = {.byte_fallback = true, .replacements = {{std::string(kGgufSpaceMark), " "}}},
       .prefix = {},
       .suffix = {}},
      config);
}

// ---- Building a SentencePiece model in memory (field numbers: sentencepiece_model.h)

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

// The trainer's settings: the kind of model, and the ids of roles.
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

// The model file as the hub has it, without the added tokens of `config`.
Result<std::string> sentencepiece_file(const GgufMetadata& metadata,
                                       const GgufVocabulary& vocabulary, TokenizerConfig& config) {
  constexpr uint32_t kPieceScore = 2;
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
      kind = GgufVocabulary::kUnknown;
    } else if (kind == GgufVocabulary::kUnknown || kind < GgufVocabulary::kNormal) {
      kind = GgufVocabulary::kUnused;  // the library accepts only one unknown piece
    }
    std::string piece;
    append_bytes(kPieceText, token, piece);
    append_float(kPieceScore, static_cast<float>((*scores)[id]), piece);
    append_number(kPieceType, static_cast<uint64_t>(kind), piece);
    append_bytes(kPieces, piece, model);
    // The hub lists these tokens as added tokens; those with a space mark are pieces of the model.
    if (kind != GgufVocabulary::kUserDefined ||
        token.find(kGgufSpaceMark) != std::string_view::npos)
      continue;
    config.added_tokens.push_back({.id = static_cast<TokenId>(id), .content = std::string(token)});
  }
  append_bytes(kTrainerSpec, trainer_spec(unknown_id), model);
  append_bytes(kNormalizerSpec,
               normalizer_spec(adds_space.value_or(true), removes_spaces.value_or(false)), model);
  return model;
}

}  // namespace

Result<GgufSentencePiece> gguf_sentencepiece(const GgufMetadata& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, read_gguf_vocabulary(metadata));
  GgufSentencePiece model;
  HEDDLE_ASSIGN_OR_RETURN(model.config, read_config(metadata, vocabulary));
  HEDDLE_ASSIGN_OR_RETURN(model.file, sentencepiece_file(metadata, vocabulary, model.config));
  return model;
}

Result<TokenizerConfig> gguf_tokenizer_config(const GgufMetadata& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, read_gguf_vocabulary(metadata));
  return read_config(metadata, vocabulary);
}

Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const GgufMetadata& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const auto model, metadata.text("tokenizer.ggml.model"));
  if (model && *model == "llama") {
    HEDDLE_ASSIGN_OR_RETURN(const GgufSentencePiece piece, gguf_sentencepiece(metadata));
    return parse_sentencepiece(piece.file, piece.config);
  }
  HEDDLE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, read_gguf_vocabulary(metadata));
  HEDDLE_ASSIGN_OR_RETURN(TokenizerConfig config, read_config(metadata, vocabulary));
  if (model && *model == "gpt2") return make_bpe(metadata, vocabulary, std::move(config));
  if (model && *model == "gemma4") {
    return make_character_bpe(metadata, vocabulary, std::move(config));
  }
  return unimplemented(
      fmt::format("tokenizer.ggml.model is '{}'; served are gpt2 (BPE), gemma4 (BPE of "
                  "characters) and llama (SentencePiece)",
                  model.value_or("")));
}

Result<TokenizerConfig> load_gguf_tokenizer_config(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const auto model, checkpoint::GgufModel::open(path));
  Result<TokenizerConfig> config = gguf_tokenizer_config(model.metadata());
  if (!config.ok()) return with_remedy(config.status(), kDownloadAgain).with_context(path.string());
  return config;
}

Result<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const auto model, checkpoint::GgufModel::open(path));
  Result<std::unique_ptr<Tokenizer>> tokenizer = make_gguf_tokenizer(model.metadata());
  if (!tokenizer.ok()) {
    return with_remedy(tokenizer.status(), kDownloadAgain).with_context(path.string());
  }
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

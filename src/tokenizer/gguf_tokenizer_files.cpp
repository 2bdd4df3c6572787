// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/gguf_tokenizer_files.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/gguf_vocabulary.h"

namespace heddle::tokenizer {

namespace {

using checkpoint::GgufMetadata;
using nlohmann::ordered_json;

ordered_json split_json(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

ordered_json byte_level_json() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", false}};
}

// The post-processor with the tokens before and after every text.
ordered_json around_json(const std::optional<std::string>& front,
                         const std::optional<std::string>& back, const GgufVocabulary& vocabulary) {
  ordered_json single = ordered_json::array(), tokens = ordered_json::object();
  const auto add = [&](const std::optional<std::string>& token) {
    if (!token) return;
    single.push_back({{"SpecialToken", {{"id", *token}, {"type_id", 0}}}});
    const auto found = std::ranges::find(vocabulary.tokens, *token);
    tokens[*token] = {
        {"id", *token}, {"ids", {found - vocabulary.tokens.begin()}}, {"tokens", {*token}}};
  };
  add(front);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(back);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", single},
          {"special_tokens", tokens}};
}

// The members of tokenizer.json that depend on the kind of merges.
struct MergedWords {
  ordered_json normalizer;
  ordered_json pre_tokenizer;
  ordered_json decoder;
  ordered_json model;
  bool adds_bos = false;
};

Result<MergedWords> byte_words(const GgufMetadata& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const GgufWordSplit split, find_gguf_word_split(metadata));
  ordered_json steps = ordered_json::array();
  for (const std::string_view pattern : split.patterns) {
    if (!pattern.empty()) steps.push_back(split_json(pattern));
  }
  steps.push_back(byte_level_json());
  return MergedWords{.normalizer = split.nfc ? ordered_json{{"type", "NFC"}} : ordered_json(),
                     .pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}},
                     .decoder = byte_level_json(),
                     .model = {{"type", "BPE"}, {"ignore_merges", split.ignore_merges}},
                     .adds_bos = split.adds_bos};
}

MergedWords character_words() {
  const auto replace = [](std::string_view what, std::string_view with) {
    return ordered_json{{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", with}};
  };
  return {
      .normalizer = replace(" ", kGgufSpaceMark),
      .pre_tokenizer = ordered_json(),
      .decoder = {{"type", "Sequence"},
                  {"decoders",
                   {replace(kGgufSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}},
      .model = {{"type", "BPE"}, {"byte_fallback", true}, {"fuse_unk", true}},
      .adds_bos = true};
}

Result<std::string> tokenizer_json(const GgufMetadata& metadata, MergedWords words,
                                   const TokenizerConfig& config) {
  HEDDLE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, read_gguf_vocabulary(metadata));
  HEDDLE_ASSIGN_OR_RETURN(const auto merges, metadata.texts("tokenizer.ggml.merges"));
  if (!merges) {
    return unimplemented(
        "the metadata has no tokenizer.ggml.merges, without which there is no tokenizer.json; take "
        "the model's safetensors files");
  }
  ordered_json added = ordered_json::array(), ids = ordered_json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.is_padding(id)) continue;
    const std::string token(vocabulary.tokens[id]);
    if (!vocabulary.is_added(id)) {
      ids[token] = id;
      continue;
    }
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", vocabulary.kinds[id] != GgufVocabulary::kUserDefined}});
  }
  words.model["vocab"] = std::move(ids);
  words.model["merges"] = *merges;
  const bool front = config.add_bos_token.value_or(words.adds_bos) && config.bos_token;
  const bool back = config.add_eos_token.value_or(false) && config.eos_token;
  ordered_json around;
  if (front || back) {
    around = around_json(front ? config.bos_token : std::nullopt,
                         back ? config.eos_token : std::nullopt, vocabulary);
  }
  return ordered_json{{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", std::move(added)},
                      {"normalizer", std::move(words.normalizer)},
                      {"pre_tokenizer", std::move(words.pre_tokenizer)},
                      {"post_processor", std::move(around)},
                      {"decoder", std::move(words.decoder)},
                      {"model", std::move(words.model)}}
      .dump(1, ' ', false, ordered_json::error_handler_t::replace);
}

Result<std::string> config_json(const GgufMetadata& metadata, const TokenizerConfig& config,
                                std::string_view tokenizer_class) {
  ordered_json json = {{"tokenizer_class", tokenizer_class}};
  for (const auto& [role, token] : config.special_tokens) json[role] = token;
  if (config.add_bos_token) json["add_bos_token"] = *config.add_bos_token;
  if (config.add_eos_token) json["add_eos_token"] = *config.add_eos_token;
  for (const AddedToken& token : config.added_tokens) {
    json["added_tokens_decoder"][std::to_string(token.id)] = {{"content", token.content},
                                                              {"special", token.special}};
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto templates, gguf_chat_templates(metadata));
  if (templates.size() == 1) {
    json["chat_template"] = templates.front().second;
  } else {
    for (const auto& [name, text] : templates) {
      json["chat_template"].push_back({{"name", name}, {"template", text}});
    }
  }
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

Result<std::vector<TokenizerFile>> gguf_tokenizer_files(const GgufMetadata& metadata) {
  // Reports the same errors as loading: a vocabulary that is not supported is not written.
  HEDDLE_RETURN_IF_ERROR(make_gguf_tokenizer(metadata).status());
  HEDDLE_ASSIGN_OR_RETURN(const auto kind, metadata.text("tokenizer.ggml.model"));
  if (kind && *kind == "llama") {
    HEDDLE_ASSIGN_OR_RETURN(GgufSentencePiece piece, gguf_sentencepiece(metadata));
    HEDDLE_ASSIGN_OR_RETURN(std::string config,
                            config_json(metadata, piece.config, "LlamaTokenizer"));
    return std::vector<TokenizerFile>{{"tokenizer.model", std::move(piece.file)},
                                      {"tokenizer_config.json", std::move(config)}};
  }
  HEDDLE_ASSIGN_OR_RETURN(const TokenizerConfig config, gguf_tokenizer_config(metadata));
  MergedWords words = character_words();
  if (kind && *kind == "gpt2") {
    HEDDLE_ASSIGN_OR_RETURN(words, byte_words(metadata));
  }
  HEDDLE_ASSIGN_OR_RETURN(std::string json, tokenizer_json(metadata, std::move(words), config));
  HEDDLE_ASSIGN_OR_RETURN(std::string settings,
                          config_json(metadata, config, "PreTrainedTokenizerFast"));
  return std::vector<TokenizerFile>{{"tokenizer.json", std::move(json)},
                                    {"tokenizer_config.json", std::move(settings)}};
}

}  // namespace heddle::tokenizer

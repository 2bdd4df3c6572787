// SPDX-License-Identifier: Apache-2.0
// Tokenizer files for tests: small ones as JSON values, so that a test can break one thing, and the
// SentencePiece models of tests/golden/tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/json_reader.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer::testing {

using Json = nlohmann::json;

inline std::string repeat(std::string_view part, size_t count) {
  std::string text;
  text.reserve(part.size() * count);
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

// The text alone; with special tokens parsed, and as plain text.
inline constexpr EncodeOptions kContent = {.add_special_tokens = false};
inline constexpr EncodeOptions kPlain = {.add_special_tokens = false,
                                         .parse_special_tokens = false};

inline Json added_token(TokenId id, std::string_view content, const Json& flags = Json::object()) {
  Json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  token.update(flags);
  return token;
}

// The 256 bytes as ids 0..255, then what the merges make, then <|bos|>, <|end|> and <think> (which
// is not special). Splits words as GPT-2 does.
inline Json byte_level_json() {
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"},   {"l", "l"},       {"he", "ll"},  {"hell", "o"},  {"Ġ", "w"},
      {"o", "r"},   {"Ġw", "or"},     {"Ġwor", "l"}, {"Ġworl", "d"}, {"a", "a"},
      {"aa", "aa"}, {"aaaa", "aaaa"}, {"Ã", "©"},    {"Ġ", "Ġ"}};
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[spell_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  }
  TokenId next = 256;
  Json lines = Json::array();
  for (const auto& [left, right] : merges) {
    vocabulary[left + right] = next++;
    lines.push_back(std::string(left).append(" ").append(right));
  }
  return {{"version", "1.0"},
          {"added_tokens",
           {added_token(next, "<|bos|>"), added_token(next + 1, "<|end|>"),
            added_token(next + 2, "<think>", {{"special", false}})}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", lines}, {"unk_token", nullptr}}}};
}

inline constexpr TokenId kHello = 259;       // "hello"
inline constexpr TokenId kSpaceWorld = 264;  // " world"
inline constexpr TokenId kBos = 270;
inline constexpr TokenId kEnd = 271;
inline constexpr TokenId kThink = 272;

// The pipeline of Llama-2's own tokenizer.json: characters, a space in front of every text, bytes
// for what the vocabulary lacks.
inline Json byte_fallback_json() {
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary["<0x" + std::string(1, "0123456789ABCDEF"[byte >> 4]) +
               std::string(1, "0123456789ABCDEF"[byte & 15]) + ">"] = 3 + byte;
  }
  TokenId next = 259;
  for (const char* piece : {"▁", "a", "b", "c", "▁a", "ab", "▁ab"}) vocabulary[piece] = next++;
  return {
      {"added_tokens", {added_token(0, "<unk>"), added_token(1, "<s>"), added_token(2, "</s>")}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "▁"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocabulary},
        {"merges", Json::array({Json::array({"▁", "a"}), Json::array({"a", "b"}),
                                Json::array({"▁a", "b"})})}}}};
}

inline Result<std::unique_ptr<Tokenizer>> parse(const Json& json,
                                                const TokenizerConfig& config = {}) {
  return parse_tokenizer_json(json.dump(), config);
}

// The tokenizer of a file that must be good.
inline std::unique_ptr<Tokenizer> make(const Json& json, const TokenizerConfig& config = {}) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = parse(json, config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return std::move(tokenizer).value();
}

inline std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                                   EncodeOptions options = {}) {
  Result<std::vector<TokenId>> ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().to_string();
  return ids.ok() ? *ids : std::vector<TokenId>();
}

// The bytes of a SentencePiece model of tests/golden/tokenizer; empty, and the test fails, where
// there is none.
inline std::string golden_model(std::string_view name) {
  const std::filesystem::path folder = "tests/golden/tokenizer";
  auto bytes = read_whole_file(heddle::testing::repository_path(folder / name));
  EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
  return bytes.ok() ? std::move(bytes).value() : std::string();
}

}  // namespace heddle::tokenizer::testing

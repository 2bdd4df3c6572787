// SPDX-License-Identifier: Apache-2.0
// tokenizer_config.json and special_tokens_map.json: special tokens and their roles.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/status.h>

#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {

struct TokenizerConfig {
  std::string tokenizer_class;  // "Qwen2Tokenizer"; empty if the file names no class
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  bool add_prefix_space = false;
  // SentencePiece: a text after a special token also gets a leading space, not only the first text.
  bool legacy = true;
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder, one entry per id
  bool has_decoder = false;              // whether the file has an added_tokens_decoder

  // The name of the file from which the added tokens come.
  [[nodiscard]] std::string_view added_tokens_file() const {
    return has_decoder ? "tokenizer_config.json" : "added_tokens.json";
  }

  // "bos_token", "unk_token", ... with their texts, which chat templates may use.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // additional_special_tokens or extra_special_tokens, without ids.
  std::vector<AddedToken> more_special_tokens;

  // One sentence for each contradiction between the two files, with the two values and the one
  // used. The caller logs them once.
  std::vector<std::string> notes;
};

// Parses the configuration. `special_tokens_map` is the text of that file, or empty. As in
// transformers, its roles override the configuration's if that has no added_tokens_decoder;
// otherwise the map is not used, and errors in it become notes. Error: kDataLoss naming the key,
// and the file if it is the map.
[[nodiscard]] Result<TokenizerConfig> parse_tokenizer_config(
    std::string_view json, std::string_view special_tokens_map = {});

// Adds the tokens of added_tokens.json, given its text; empty without such a file. As in
// transformers the file is only used if there is no added_tokens_decoder, and its tokens are
// special if they have a role or are among more_special_tokens. Error: kDataLoss naming the token,
// if the file is used.
[[nodiscard]] Status join_added_tokens(std::string_view json, TokenizerConfig& config);

// As join_added_tokens(), with the folder's file. Error: also with the file's path.
[[nodiscard]] Status load_added_tokens(const std::filesystem::path& model_dir,
                                       TokenizerConfig& config);

// Special tokens that are not added tokens, with their vocabulary ids. As in transformers, those
// that the vocabulary lacks get new ids, from `first_id` or after the added tokens; each is logged.
[[nodiscard]] std::vector<AddedToken> unlisted_special_tokens(
    const TokenizerConfig& config,
    const std::function<std::optional<TokenId>(const std::string&)>& id_of, TokenId first_id);

// Reads the configuration of a folder: defaults if it has neither file; for a GGUF file, its
// metadata. Error: as parse_tokenizer_config() with the file's path, and as file_exists()
// (core/file_presence.h).
[[nodiscard]] Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir);

// Looks up the configured roles. A role whose token is not in the vocabulary is omitted with a
// warning.
[[nodiscard]] SpecialRoles resolve_roles(const TokenizerConfig& config, const Tokenizer& tokenizer);

}  // namespace heddle::tokenizer

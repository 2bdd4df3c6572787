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
  std::string tokenizer_class;  // "Qwen2Tokenizer"; empty without one
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  bool add_prefix_space = false;
  // SentencePiece: text after a special token gets a leading space, as the first text does.
  bool legacy = true;
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder, one entry an id
  bool has_decoder = false;              // whether there is an added_tokens_decoder

  // The file that the added tokens are from.
  [[nodiscard]] std::string_view added_tokens_file() const {
    return has_decoder ? "tokenizer_config.json" : "added_tokens.json";
  }

  // "bos_token", "unk_token", ... with their texts: what chat templates may show.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // additional_special_tokens or extra_special_tokens, without ids.
  std::vector<AddedToken> more_special_tokens;

  // Contradictions between the two files, each with the values and the one used. To be logged once.
  std::vector<std::string> notes;
};

// `special_tokens_map` is the text of that file, or empty. As in transformers, it overrides the
// other file's roles if that has no added_tokens_decoder; otherwise it is not used, and errors in
// it become notes. Error: kDataLoss naming the key, and the file if it is the map.
[[nodiscard]] Result<TokenizerConfig> parse_tokenizer_config(
    std::string_view json, std::string_view special_tokens_map = {});

// Joins added_tokens.json, the text of that file; empty without one. As in transformers it counts
// only without added_tokens_decoder, and those tokens are special that have a role or are among
// more_special_tokens. Error: kDataLoss naming the token, where the file counts.
[[nodiscard]] Status join_added_tokens(std::string_view json, TokenizerConfig& config);

// join_added_tokens() with the folder's file. Error: as above with the file's path.
[[nodiscard]] Status load_added_tokens(const std::filesystem::path& model_dir,
                                       TokenizerConfig& config);

// Special tokens that are not added tokens, with their vocabulary ids. As in transformers, missing
// ones get new ids from `first_id` on or after the added tokens; each is logged.
[[nodiscard]] std::vector<AddedToken> unlisted_special_tokens(
    const TokenizerConfig& config,
    const std::function<std::optional<TokenId>(const std::string&)>& id_of, TokenId first_id);

// The defaults when the folder has neither file; what the metadata says where there is a GGUF file.
// Error: as above with the file's path, and as
// file_exists() (core/file_presence.h).
[[nodiscard]] Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir);

// Looks up the configured roles; a role whose token the vocabulary lacks is omitted with a warning.
[[nodiscard]] SpecialRoles resolve_roles(const TokenizerConfig& config, const Tokenizer& tokenizer);

}  // namespace heddle::tokenizer

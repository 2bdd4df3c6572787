// SPDX-License-Identifier: Apache-2.0
// tokenizer_config.json: special tokens and their roles.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
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
  // SentencePiece: text behind a special token gets a leading space like the first text does.
  bool legacy = true;
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder, by id
};

// Error: kDataLoss naming the key.
[[nodiscard]] Result<TokenizerConfig> parse_tokenizer_config(std::string_view json);

// The defaults when the folder has no such file.
[[nodiscard]] Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir);

// Looks the configured roles up; a role whose token the vocabulary lacks is left out with a
// warning.
[[nodiscard]] SpecialRoles resolve_roles(const TokenizerConfig& config, const Tokenizer& tokenizer);

}  // namespace heddle::tokenizer

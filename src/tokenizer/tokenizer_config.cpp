// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_config.h"

#include <charconv>
#include <system_error>

#include <fmt/format.h>

#include "core/log.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kFileName = "tokenizer_config.json";

// A token is a string or an object with "content".
Result<std::optional<std::string>> parse_role(const JsonValue& root, std::string_view key) {
  const std::optional<JsonValue> member = root.find(key);
  if (!member) return std::optional<std::string>();
  if (member->is_object()) {
    HEDDLE_ASSIGN_OR_RETURN(std::string content, member->require_string("content"));
    return std::optional<std::string>(std::move(content));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view text, member->as_string());
  return std::optional<std::string>(text);
}

Result<std::optional<bool>> parse_flag(const JsonValue& root, std::string_view key) {
  const std::optional<JsonValue> member = root.find(key);
  if (!member) return std::optional<bool>();
  HEDDLE_ASSIGN_OR_RETURN(const bool value, member->as_bool());
  return std::optional<bool>(value);
}

Result<std::vector<AddedToken>> parse_added_tokens_decoder(const JsonValue& decoder) {
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object members, decoder.as_object());
  std::vector<AddedToken> tokens;
  for (const auto [key, value] : members) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > kMaxTokenId) {
      return data_loss(fmt::format("{} has the key '{}'; expected a token id from 0 to {}",
                                   decoder.path(), key, kMaxTokenId));
    }
    const JsonValue entry(value, fmt::format("{}.{}", decoder.path(), key));
    HEDDLE_ASSIGN_OR_RETURN(AddedToken token, parse_added_token(entry, id));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void set_role(const Tokenizer& tokenizer, std::string_view name,
              const std::optional<std::string>& configured, std::optional<TokenId>& id,
              std::string& text) {
  if (!configured || configured->empty()) return;
  id = tokenizer.token_to_id(*configured);
  if (id) {
    text = *configured;
  } else {
    log_warning(fmt::format("{}: the {} '{}' is not in the vocabulary and is left out", kFileName,
                            name, *configured));
  }
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(std::string_view json) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  const JsonValue root = document.root();
  if (!root.is_object()) return root.wrong("an object");
  TokenizerConfig config;
  HEDDLE_ASSIGN_OR_RETURN(config.tokenizer_class, root.string_or("tokenizer_class", ""));
  HEDDLE_ASSIGN_OR_RETURN(config.bos_token, parse_role(root, "bos_token"));
  HEDDLE_ASSIGN_OR_RETURN(config.eos_token, parse_role(root, "eos_token"));
  HEDDLE_ASSIGN_OR_RETURN(config.pad_token, parse_role(root, "pad_token"));
  HEDDLE_ASSIGN_OR_RETURN(config.add_bos_token, parse_flag(root, "add_bos_token"));
  HEDDLE_ASSIGN_OR_RETURN(config.add_eos_token, parse_flag(root, "add_eos_token"));
  HEDDLE_ASSIGN_OR_RETURN(config.add_prefix_space, root.bool_or("add_prefix_space", false));
  HEDDLE_ASSIGN_OR_RETURN(config.legacy, root.bool_or("legacy", true));
  if (const auto decoder = root.find("added_tokens_decoder")) {
    HEDDLE_ASSIGN_OR_RETURN(config.added_tokens, parse_added_tokens_decoder(*decoder));
  }
  return config;
}

Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / kFileName;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return TokenizerConfig{};
  HEDDLE_ASSIGN_OR_RETURN(const std::string json, read_file(path));
  Result<TokenizerConfig> config = parse_tokenizer_config(json);
  if (!config.ok()) return config.status().with_context(path.string());
  return config;
}

SpecialRoles resolve_roles(const TokenizerConfig& config, const Tokenizer& tokenizer) {
  SpecialRoles roles;
  set_role(tokenizer, "bos_token", config.bos_token, roles.bos, roles.bos_text);
  set_role(tokenizer, "eos_token", config.eos_token, roles.eos, roles.eos_text);
  set_role(tokenizer, "pad_token", config.pad_token, roles.pad, roles.pad_text);
  return roles;
}

}  // namespace heddle::tokenizer

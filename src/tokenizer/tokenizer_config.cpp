// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "core/file_presence.h"
#include "core/json_reader.h"
#include "core/log.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kFileName = "tokenizer_config.json";
constexpr std::string_view kMapFileName = "special_tokens_map.json";

// The tokens that transformers gives to chat templates.
constexpr std::array<std::string_view, 7> kSpecialTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// A token is a string, an object with "content", or null.
Status read_special_tokens(const JsonValue& root, TokenizerConfig& config) {
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object members, root.as_object());
  for (const auto [key, value] : members) {
    if (std::ranges::find(kSpecialTokens, key) == kSpecialTokens.end()) continue;
    const JsonValue member(value, std::string(key));
    std::erase_if(config.special_tokens,
                  [name = key](const auto& known) { return known.first == name; });
    if (member.is_object()) {
      HEDDLE_ASSIGN_OR_RETURN(std::string text, member.require_string("content"));
      config.special_tokens.emplace_back(key, std::move(text));
    } else if (!value.is_null()) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string_view text, member.as_string());
      config.special_tokens.emplace_back(key, text);
    }
  }
  return ok_status();
}

std::optional<std::string> role_of(const TokenizerConfig& config, std::string_view name) {
  for (const auto& [key, text] : config.special_tokens) {
    if (key == name) return text;
  }
  return std::nullopt;
}

// Joins what special_tokens_map.json says, if it counts (parse_tokenizer_config).
Status join_special_tokens_map(std::string_view json, TokenizerConfig& config) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  if (!document.root().is_object()) return document.root().wrong("an object");
  TokenizerConfig map;
  HEDDLE_RETURN_IF_ERROR(read_special_tokens(document.root(), map));
  for (auto& [name, text] : map.special_tokens) {
    const auto known =
        std::ranges::find(config.special_tokens, name, &std::pair<std::string, std::string>::first);
    const bool has_other = known != config.special_tokens.end() && known->second != text;
    if (has_other) {
      config.notes.push_back(fmt::format(
          "the {} is '{}' in {} and '{}' in {}; the one of {} is used", name, known->second,
          kFileName, text, kMapFileName, config.has_decoder ? kFileName : kMapFileName));
    }
    if (config.has_decoder) continue;
    if (has_other) {
      known->second = std::move(text);
    } else if (known == config.special_tokens.end()) {
      config.special_tokens.emplace_back(name, std::move(text));
    }
  }
  return ok_status();
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
    const auto known = std::ranges::find(tokens, id, &AddedToken::id);  // a key given twice
    if (known != tokens.end()) {
      *known = std::move(token);
    } else {
      tokens.push_back(std::move(token));
    }
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

// The answers of tokenizer_config.json alone.
Result<TokenizerConfig> parse_own(std::string_view json) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  const JsonValue root = document.root();
  if (!root.is_object()) return root.wrong("an object");
  TokenizerConfig config;
  HEDDLE_ASSIGN_OR_RETURN(config.tokenizer_class, root.string_or("tokenizer_class", ""));
  HEDDLE_ASSIGN_OR_RETURN(config.add_bos_token, parse_flag(root, "add_bos_token"));
  HEDDLE_ASSIGN_OR_RETURN(config.add_eos_token, parse_flag(root, "add_eos_token"));
  HEDDLE_ASSIGN_OR_RETURN(config.add_prefix_space, root.bool_or("add_prefix_space", false));
  HEDDLE_ASSIGN_OR_RETURN(config.legacy, root.bool_or("legacy", true));
  if (const auto decoder = root.find("added_tokens_decoder")) {
    config.has_decoder = true;
    HEDDLE_ASSIGN_OR_RETURN(config.added_tokens, parse_added_tokens_decoder(*decoder));
  }
  HEDDLE_RETURN_IF_ERROR(read_special_tokens(root, config));
  return config;
}

// Joins the roles of both files. `map` is the text of special_tokens_map.json, or why it cannot be
// read, which is no error where the file is not used.
Status join_roles(const Result<std::string>& map, TokenizerConfig& config) {
  Status status = map.status();
  if (status.ok() && !map->empty()) status = join_special_tokens_map(*map, config);
  if (!status.ok() && config.has_decoder) {
    config.notes.push_back(fmt::format("{} is not used, because {} has added_tokens_decoder: {}",
                                       kMapFileName, kFileName, status.message()));
    status = ok_status();
  }
  config.bos_token = role_of(config, "bos_token");
  config.eos_token = role_of(config, "eos_token");
  config.pad_token = role_of(config, "pad_token");
  return status;
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(std::string_view json,
                                               std::string_view special_tokens_map) {
  HEDDLE_ASSIGN_OR_RETURN(TokenizerConfig config, parse_own(json));
  HEDDLE_RETURN_IF_ERROR(
      join_roles(std::string(special_tokens_map), config).with_context(std::string(kMapFileName)));
  return config;
}

Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir) {
  const auto text_of = [](const std::filesystem::path& path) -> Result<std::string> {
    HEDDLE_ASSIGN_OR_RETURN(const bool exists, file_exists(path));
    return exists ? read_whole_file(path) : Result<std::string>("");
  };
  const std::filesystem::path path = model_dir / kFileName;
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, file_exists(path));
  HEDDLE_ASSIGN_OR_RETURN(const std::string json,
                          exists ? read_whole_file(path) : Result<std::string>("{}"));
  Result<TokenizerConfig> config = parse_own(json);
  if (!config.ok()) return config.status().with_context(path.string());
  const std::filesystem::path map_path = model_dir / kMapFileName;
  const Result<std::string> map = text_of(map_path);
  const Status joined = join_roles(map, *config);
  if (!joined.ok()) return map.ok() ? joined.with_context(map_path.string()) : joined;
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

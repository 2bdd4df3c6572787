// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "checkpoint/gguf_model.h"
#include "core/file_presence.h"
#include "core/json_reader.h"
#include "core/log.h"
#include "core/remedy.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kFileName = "tokenizer_config.json";
constexpr std::string_view kMapFileName = "special_tokens_map.json";
constexpr std::string_view kAddedFileName = "added_tokens.json";

// The special tokens that transformers passes to chat templates.
constexpr std::array<std::string_view, 7> kSpecialTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// Reads the list of further special tokens, which has two names. Under the newer one it may also be
// an object of names and texts. Entries are strings, or objects with flags.
Status read_more_special_tokens(const JsonValue& list, TokenizerConfig& config) {
  std::vector<JsonValue> entries;
  if (list.is_object()) {
    HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object members, list.as_object());
    for (const auto [name, value] : members) {
      entries.emplace_back(value, fmt::format("{}.{}", list.path(), name));
    }
  } else {
    HEDDLE_ASSIGN_OR_RETURN(entries, list.items());
  }
  for (const JsonValue& entry : entries) {
    AddedToken token{.id = -1};
    if (entry.is_object()) {
      HEDDLE_ASSIGN_OR_RETURN(token, parse_added_token(entry, -1));
    } else {
      HEDDLE_ASSIGN_OR_RETURN(const std::string_view text, entry.as_string());
      token.content = text;
    }
    token.special = true;
    const auto known =
        std::ranges::find(config.more_special_tokens, token.content, &AddedToken::content);
    if (known == config.more_special_tokens.end()) {
      config.more_special_tokens.push_back(std::move(token));
    }
  }
  return ok_status();
}

// Reads the special tokens; each is a string, an object with "content", or null.
Status read_special_tokens(const JsonValue& root, TokenizerConfig& config) {
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object members, root.as_object());
  for (const auto [key, value] : members) {
    if (key == "additional_special_tokens" || key == "extra_special_tokens") {
      if (value.is_null()) continue;
      HEDDLE_RETURN_IF_ERROR(read_more_special_tokens(JsonValue(value, std::string(key)), config));
      continue;
    }
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

// Adds the roles of special_tokens_map.json if the file is used (parse_tokenizer_config).
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
  if (config.has_decoder) return ok_status();
  for (AddedToken& token : map.more_special_tokens) {
    const auto known =
        std::ranges::find(config.more_special_tokens, token.content, &AddedToken::content);
    if (known == config.more_special_tokens.end()) {
      config.more_special_tokens.push_back(std::move(token));
    }
  }
  return ok_status();
}

// The tokens with roles, in transformers' order, followed by the other special tokens.
std::vector<AddedToken> all_special_tokens(const TokenizerConfig& config) {
  std::vector<AddedToken> tokens;
  const auto add = [&tokens](AddedToken token) {
    if (token.content.empty()) return;
    if (std::ranges::find(tokens, token.content, &AddedToken::content) != tokens.end()) return;
    tokens.push_back(std::move(token));
  };
  const auto add_role = [&add](const std::optional<std::string>& text) {
    if (text) add({.id = -1, .content = *text, .special = true});
  };
  add_role(config.bos_token);
  add_role(config.eos_token);
  for (const std::string_view name : kSpecialTokens) add_role(role_of(config, name));
  add_role(config.pad_token);
  for (const AddedToken& token : config.more_special_tokens) add(token);
  return tokens;
}

// Parses {"content": id}, which has no flags.
Result<std::vector<AddedToken>> parse_added_tokens_file(std::string_view json) {
  std::vector<AddedToken> tokens;
  HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object members, document.root().as_object());
  for (const auto [content, value] : members) {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t id, JsonValue(value, std::string(content)).as_integer());
    if (id < 0 || id > kMaxTokenId) {
      return data_loss(
          fmt::format("'{}' has the id {}, outside 0 to {}", content, id, kMaxTokenId));
    }
    AddedToken token{.id = static_cast<TokenId>(id), .content = std::string(content)};
    const auto known = std::ranges::find(tokens, token.content, &AddedToken::content);
    if (known != tokens.end()) {  // of a repeated key the last value is used
      *known = std::move(token);
    } else {
      tokens.push_back(std::move(token));
    }
  }
  return tokens;
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
    // an earlier token with the same id
    const auto known = std::ranges::find(tokens, id, &AddedToken::id);
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

// The text of a file; empty if it does not exist.
Result<std::string> text_of(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, optional_file_exists(path));
  return exists ? read_whole_file(path) : Result<std::string>("");
}

// Parses tokenizer_config.json without the other file.
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

// Combines the roles of both files. `map` is the text of special_tokens_map.json, or the error of
// reading it, which is ignored if the file is not used.
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

Status join_added_tokens(std::string_view json, TokenizerConfig& config) {
  if (json.empty()) return ok_status();
  Result<std::vector<AddedToken>> tokens = parse_added_tokens_file(json);
  if (config.has_decoder) {
    const auto differs = [&](const AddedToken& token) {
      const auto known =
          std::ranges::find(config.added_tokens, token.content, &AddedToken::content);
      return known == config.added_tokens.end() || known->id != token.id;
    };
    const std::string what =
        !tokens.ok() ? tokens.status().message()
        : std::ranges::any_of(*tokens, differs)
            ? fmt::format("'{}' differs", std::ranges::find_if(*tokens, differs)->content)
            : "";
    if (!what.empty()) {
      config.notes.push_back(fmt::format("{} is not used, because {} has added_tokens_decoder: {}",
                                         kAddedFileName, kFileName, what));
    }
    return ok_status();
  }
  if (!tokens.ok()) return tokens.status();
  const std::vector<AddedToken> special = all_special_tokens(config);
  for (AddedToken& token : *tokens) {
    token.special =
        std::ranges::find(special, token.content, &AddedToken::content) != special.end();
    token.normalized = !token.special;
    config.added_tokens.push_back(std::move(token));
  }
  return ok_status();
}

Status load_added_tokens(const std::filesystem::path& model_dir, TokenizerConfig& config) {
  const std::filesystem::path path = model_dir / kAddedFileName;
  HEDDLE_ASSIGN_OR_RETURN(const std::string json, text_of(path));
  return with_remedy(join_added_tokens(json, config), kDownloadAgain).with_context(path.string());
}

std::vector<AddedToken> unlisted_special_tokens(
    const TokenizerConfig& config,
    const std::function<std::optional<TokenId>(const std::string&)>& id_of, TokenId first_id) {
  for (const AddedToken& token : config.added_tokens) first_id = std::max(first_id, token.id + 1);
  std::vector<AddedToken> tokens = all_special_tokens(config);
  std::erase_if(tokens, [&](const AddedToken& token) {
    return std::ranges::find(config.added_tokens, token.content, &AddedToken::content) !=
           config.added_tokens.end();
  });
  for (AddedToken& token : tokens) {
    const std::optional<TokenId> known = id_of(token.content);
    token.id = known ? *known : first_id++;
    if (known) continue;
    log_warning(fmt::format(
        "the special token '{}' is in none of the tokenizer's files; as in transformers its id is "
        "{}, after all others",
        token.content, token.id));
  }
  return tokens;
}

Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& model_dir) {
  HEDDLE_ASSIGN_OR_RETURN(const auto gguf, checkpoint::find_gguf(model_dir));
  if (gguf) return load_gguf_tokenizer_config(*gguf);
  const std::filesystem::path path = model_dir / kFileName;
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, optional_file_exists(path));
  HEDDLE_ASSIGN_OR_RETURN(const std::string json,
                          exists ? read_whole_file(path) : Result<std::string>("{}"));
  Result<TokenizerConfig> config = parse_own(json);
  if (!config.ok()) return with_remedy(config.status(), kDownloadAgain).with_context(path.string());
  const std::filesystem::path map_path = model_dir / kMapFileName;
  const Result<std::string> map = text_of(map_path);
  const Status joined = join_roles(map, *config);
  if (!joined.ok()) {
    return map.ok() ? with_remedy(joined, kDownloadAgain).with_context(map_path.string()) : joined;
  }
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

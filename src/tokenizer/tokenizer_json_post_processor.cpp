// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tokenizer/tokenizer_json_steps.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer {
namespace {

Result<TokenId> parse_id(const JsonValue& value) {
  HEDDLE_ASSIGN_OR_RETURN(const int64_t id, value.as_integer());
  if (id < 0 || id > kMaxTokenId) {
    return data_loss(fmt::format("{} is {}; ids go from 0 to {}", value.path(), id, kMaxTokenId));
  }
  return static_cast<TokenId>(id);
}

// The ids that a template's {"SpecialToken": {"id": NAME}} stands for.
Status append_special_token(const JsonValue& description, const JsonValue& item,
                            std::vector<TokenId>& ids) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string name, item.require_string("id"));
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue tokens, description.require("special_tokens"));
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue token, tokens.require(name));
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue list, token.require("ids"));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> values, list.items());
  for (const JsonValue& value : values) {
    HEDDLE_ASSIGN_OR_RETURN(const TokenId id, parse_id(value));
    ids.push_back(id);
  }
  return ok_status();
}

Status add_template(const JsonValue& description, PostProcessorParts& parts) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue single, description.require("single"));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, single.items());
  bool seen_text = false;
  for (const JsonValue& item : items) {
    if (item.find("Sequence")) {
      if (seen_text) {
        return unimplemented(
            fmt::format("{}: a text that is repeated is not supported", item.path()));
      }
      seen_text = true;
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue token, item.require("SpecialToken"));
    HEDDLE_RETURN_IF_ERROR(
        append_special_token(description, token, seen_text ? parts.suffix : parts.prefix));
  }
  if (!seen_text) {
    return data_loss(fmt::format("{} has no Sequence, so no text would be encoded", single.path()));
  }
  return ok_status();
}

// "cls" and "sep" are pairs ["<s>", 0].
Status add_pair_token(const JsonValue& description, std::string_view key,
                      std::vector<TokenId>& ids) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue pair, description.require(key));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, pair.items());
  if (items.size() != 2) return pair.wrong("a token and its id");
  HEDDLE_ASSIGN_OR_RETURN(const TokenId id, parse_id(items[1]));
  ids.push_back(id);
  return ok_status();
}

Status add_processor(const JsonValue& description, PostProcessorParts& parts) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string type, description.require_string("type"));
  if (type == "ByteLevel") return ok_status();  // changes offsets only
  if (type == "TemplateProcessing") return add_template(description, parts);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    HEDDLE_RETURN_IF_ERROR(add_pair_token(description, "cls", parts.prefix));
    return add_pair_token(description, "sep", parts.suffix);
  }
  if (type == "Sequence") {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue list, description.require("processors"));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, list.items());
    for (const JsonValue& item : items) HEDDLE_RETURN_IF_ERROR(add_processor(item, parts));
    return ok_status();
  }
  return unimplemented(
      fmt::format("{}: the post-processor '{}' is not supported", description.path(), type));
}

}  // namespace

Result<PostProcessorParts> parse_post_processor(const std::optional<JsonValue>& description) {
  PostProcessorParts parts;
  if (description) HEDDLE_RETURN_IF_ERROR(add_processor(*description, parts));
  return parts;
}

}  // namespace heddle::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <fmt/format.h>

#include "tokenizer/tokenizer_json_steps.h"

namespace heddle::tokenizer {
namespace {

Status add_replace(const JsonValue& description, TokenDecoder& decoder) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue pattern, description.require("pattern"));
  if (!pattern.find("String")) {
    return unimplemented(fmt::format("{}: a decoder can only replace a String", pattern.path()));
  }
  HEDDLE_ASSIGN_OR_RETURN(std::string text, pattern.require_string("String"));
  HEDDLE_ASSIGN_OR_RETURN(std::string content, description.require_string("content"));
  decoder.replacements.emplace_back(std::move(text), std::move(content));
  return ok_status();
}

Status add_strip(const JsonValue& description, TokenDecoder& decoder) {
  const auto count_of = [&](std::string_view key) -> Result<int64_t> {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue member, description.require(key));
    return member.as_integer();
  };
  HEDDLE_ASSIGN_OR_RETURN(const std::string content, description.require_string("content"));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t start, count_of("start"));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t stop, count_of("stop"));
  if (content != " " || start < 0 || start > 1 || stop != 0) {
    return unimplemented(fmt::format(
        "{}: strips '{}' {} times in front and {} times behind; only one space in front is "
        "supported",
        description.path(), content, start, stop));
  }
  decoder.strip_leading_space = decoder.strip_leading_space || start == 1;
  return ok_status();
}

Status add_metaspace(const JsonValue& description, TokenDecoder& decoder) {
  HEDDLE_ASSIGN_OR_RETURN(std::string replacement, description.string_or("replacement", "▁"));
  HEDDLE_ASSIGN_OR_RETURN(const bool prefix, description.bool_or("add_prefix_space", true));
  HEDDLE_ASSIGN_OR_RETURN(const std::string scheme,
                          description.string_or("prepend_scheme", prefix ? "always" : "never"));
  decoder.replacements.emplace_back(std::move(replacement), " ");
  decoder.strip_leading_space = scheme != "never";
  return ok_status();
}

Status add_decoder(const JsonValue& description, DecoderParts& parts) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string type, description.require_string("type"));
  if (type == "Sequence") {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue list, description.require("decoders"));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, list.items());
    for (const JsonValue& item : items) HEDDLE_RETURN_IF_ERROR(add_decoder(item, parts));
    return ok_status();
  }
  if (type == "ByteLevel") {
    parts.byte_level = true;
    return ok_status();
  }
  if (type == "Fuse") return ok_status();  // joining is what decoding does anyway
  if (type == "ByteFallback") {
    parts.decoder.byte_fallback = true;
    return ok_status();
  }
  if (type == "Replace") return add_replace(description, parts.decoder);
  if (type == "Strip") return add_strip(description, parts.decoder);
  if (type == "Metaspace") return add_metaspace(description, parts.decoder);
  return unimplemented(
      fmt::format("{}: the decoder '{}' is not supported", description.path(), type));
}

}  // namespace

Result<DecoderParts> parse_decoder(const std::optional<JsonValue>& description) {
  DecoderParts parts;
  if (description) HEDDLE_RETURN_IF_ERROR(add_decoder(*description, parts));
  return parts;
}

}  // namespace heddle::tokenizer

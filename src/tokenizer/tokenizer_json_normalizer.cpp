// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <fmt/format.h>

#include "tokenizer/regex.h"
#include "tokenizer/tokenizer_json_steps.h"

namespace heddle::tokenizer {
namespace {

Result<Regex> parse_pattern(const JsonValue& description) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue pattern, description.require("pattern"));
  const auto compile = [&]() -> Result<Regex> {
    if (const auto literal = pattern.find("String")) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string_view text, literal->as_string());
      return Regex::compile_literal(text);
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::string text, pattern.require_string("Regex"));
    return Regex::compile(text);
  };
  Result<Regex> regex = compile();
  if (!regex.ok()) return regex.status().with_context(pattern.path());
  return regex;
}

std::optional<NormalForm> normal_form_of(std::string_view type) {
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

Status add_step(const JsonValue& description, Normalizer& normalizer) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string type, description.require_string("type"));
  if (type == "Sequence") {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue list, description.require("normalizers"));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, list.items());
    for (const JsonValue& item : items) HEDDLE_RETURN_IF_ERROR(add_step(item, normalizer));
  } else if (const auto form = normal_form_of(type)) {
    normalizer.add(*form);
  } else if (type == "Lowercase") {
    normalizer.add(LowercaseStep{});
  } else if (type == "StripAccents") {
    normalizer.add(StripAccentsStep{});
  } else if (type == "Prepend") {
    HEDDLE_ASSIGN_OR_RETURN(std::string text, description.require_string("prepend"));
    normalizer.add(PrependStep{.text = std::move(text)});
  } else if (type == "Replace") {
    HEDDLE_ASSIGN_OR_RETURN(Regex pattern, parse_pattern(description));
    HEDDLE_ASSIGN_OR_RETURN(std::string content, description.require_string("content"));
    normalizer.add(ReplaceStep{.pattern = std::move(pattern), .content = std::move(content)});
  } else if (type == "Strip") {
    StripStep step;
    HEDDLE_ASSIGN_OR_RETURN(step.left, description.bool_or("strip_left", true));
    HEDDLE_ASSIGN_OR_RETURN(step.right, description.bool_or("strip_right", true));
    normalizer.add(step);
  } else {
    return unimplemented(
        fmt::format("{}: the normalizer '{}' is not supported", description.path(), type));
  }
  return ok_status();
}

}  // namespace

Result<Normalizer> parse_normalizer(const std::optional<JsonValue>& description) {
  Normalizer normalizer;
  if (description) HEDDLE_RETURN_IF_ERROR(add_step(*description, normalizer));
  return normalizer;
}

}  // namespace heddle::tokenizer

// SPDX-License-Identifier: Apache-2.0
// JSON in and out of templates: a request's JSON becomes values, and tojson writes values as
// transformers renders them. That is Python's json.dumps: it keeps the order of keys, writes ", "
// and ": " between parts, leaves non-ASCII text as it is and does not escape for HTML.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// None, booleans, numbers (also wide ones, core/exact_json.h), strings, arrays and objects, in
// order. Error: kInvalidArgument for text that is not UTF-8 or nesting deeper than kMaxValueDepth.
Result<Value> value_from_json(const nlohmann::ordered_json& json);

// Parses JSON text. Error: kInvalidArgument when it is not JSON or too deep.
Result<Value> value_from_json_text(std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // one level's margin; without it all stands on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// A value that has a spelling (spelled_json.h) is written as that, unless the style sorts keys,
// breaks lines or wants ASCII. Error: kInvalidArgument for a value JSON has no form for (undefined,
// a macro), or the budget.
Status write_json(TextWriter& out, const Value& value, const JsonStyle& style);

}  // namespace heddle::chat

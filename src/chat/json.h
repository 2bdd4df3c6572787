// SPDX-License-Identifier: Apache-2.0
// JSON in and out of templates: converts a request's JSON to values, and writes values for tojson
// as transformers does. That is Python's json.dumps: it keeps the order of keys, writes ", " and ":
// " between parts, does not escape non-ASCII text and does not escape for HTML.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// Converts None, booleans, numbers (also those beyond 64 bits, core/exact_json.h), strings, arrays
// and objects, whose order is kept. Error: kInvalidArgument for text that is not UTF-8 or nesting
// deeper than kMaxValueDepth.
Result<Value> value_from_json(const nlohmann::ordered_json& json);

// Parses JSON text. Error: kInvalidArgument if it is not JSON or nested too deeply.
Result<Value> value_from_json_text(std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // indentation of one level; none: the text has a single line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Writes a value. If it has a spelling (spelled_json.h), that is written, unless the style sorts
// keys, breaks lines or requires ASCII. Error: kInvalidArgument for a value that JSON cannot
// represent (undefined, a macro), or if the budget is exceeded.
Status write_json(TextWriter& out, const Value& value, const JsonStyle& style);

}  // namespace heddle::chat

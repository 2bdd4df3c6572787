// SPDX-License-Identifier: Apache-2.0
// tojson as transformers renders it: Python's json.dumps, which keeps the order of keys, writes ",
// " and
// ": " between parts, leaves non-ASCII text as it is and does not escape for HTML.
#pragma once

#include <optional>
#include <string>

#include <heddle/status.h>

#include "chat/text_writer.h"
#include "chat/value.h"

namespace heddle::chat {

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // one level's margin; without it all stands on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Error: kInvalidArgument for a value JSON has no form for (undefined, a macro), or the budget.
Status write_json(TextWriter& out, const Value& value, const JsonStyle& style);

}  // namespace heddle::chat

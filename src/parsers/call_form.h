// SPDX-License-Identifier: Apache-2.0
// The form of tool calls: a grammar, in the format in which a model writes calls, that an answer
// must match if calls are forced or their arguments must follow the tools' schemas. The format's
// parser reads every text that the form accepts as calls.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "parsers/formats.h"

namespace heddle::parsers {

struct CallableTool {
  std::string name;
  // A schema of objects, whose references are JSON pointers (grammar/schema_references.h).
  nlohmann::ordered_json parameters;
  bool is_strict = false;  // false: parts of the schema that cannot be enforced are ignored
};

struct CallFormOptions {
  ToolCallFormat format = ToolCallFormat::kNone;
  bool beside_text = false;  // text may come before and between calls, and calls are optional
  bool one_call = false;     // at most one call
};

// The form of calls as a part of a structural tag (grammar/structural_tag.h). Nullopt for formats
// whose calls cannot be constrained, or cannot be constrained exactly if other text is allowed.
// `tools` must not be empty, and calls must be able to name all of them (can_name()).
[[nodiscard]] std::optional<nlohmann::ordered_json> call_form(
    const std::vector<CallableTool>& tools, const CallFormOptions& options);

// The grammar of a call's arguments by the tool's schema, as a part of a structural tag. Compiling
// it fails if the schema cannot be enforced.
[[nodiscard]] nlohmann::ordered_json arguments_form(const CallableTool& tool,
                                                    ToolCallFormat format);

// Whether a call can contain the tool's name so that the parser can read it: false if a character
// of the name ends a name in this format. Most formats accept any name.
[[nodiscard]] bool can_name(std::string_view tool, ToolCallFormat format);

// Whether call_form() also contains the answer's reasoning, because in this format calls and
// reasoning are messages of one answer, which may have several. A call is then the last message.
[[nodiscard]] bool has_reasoning(ToolCallFormat format);

// A bound on a text parameter that call_form() does not enforce, because the format writes texts
// between tags: "`pattern` of `city`". Nullopt if there is none.
[[nodiscard]] std::optional<std::string> bound_not_enforced(
    const nlohmann::ordered_json& parameters, ToolCallFormat format);

// A keyword about the arguments as a whole that call_form() does not enforce, because the format
// writes each parameter between separate tags: "`anyOf` at the root". Nullopt if there is none.
[[nodiscard]] std::optional<std::string> keyword_not_enforced(
    const nlohmann::ordered_json& parameters, ToolCallFormat format);

}  // namespace heddle::parsers

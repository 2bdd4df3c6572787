// SPDX-License-Identifier: Apache-2.0
// The form of tool calls, in the format that a model writes them in: what an answer is held to
// whose calls are forced, or must have the arguments that their tools describe. The format's
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
  bool is_strict = false;  // false: what of the schema cannot be kept to is left out
};

struct CallFormOptions {
  ToolCallFormat format = ToolCallFormat::kNone;
  bool beside_text = false;  // text may stand before and between calls, and there may be none
  bool one_call = false;     // at most
};

// A part of a structural tag (grammar/structural_tag.h). Nullopt for formats whose calls cannot be
// constrained, or not exactly if text may occur, too. `tools` is not empty, and calls can name all
// of them.
[[nodiscard]] std::optional<nlohmann::ordered_json> call_form(
    const std::vector<CallableTool>& tools, const CallFormOptions& options);

// The grammar of a call's arguments by their schema, a part of a structural tag. Compiling it fails
// if the schema cannot be enforced.
[[nodiscard]] nlohmann::ordered_json arguments_form(const CallableTool& tool,
                                                    ToolCallFormat format);

// Whether a call can name the tool so that the parser reads the name: false if one of its
// characters ends a name. Most formats accept any name.
[[nodiscard]] bool can_name(std::string_view tool, ToolCallFormat format);

// Whether call_form() has the answer's reasoning, too, as calls and reasoning are messages of one
// answer, which may have several. A call is the last one then.
[[nodiscard]] bool has_reasoning(ToolCallFormat format);

// A bound on a text parameter that call_form() does not enforce because the format writes texts
// between tags: "`pattern` of `city`". Nothing where there is none.
[[nodiscard]] std::optional<std::string> bound_not_enforced(
    const nlohmann::ordered_json& parameters, ToolCallFormat format);

// A keyword about all arguments that call_form() does not enforce, because the format puts each
// parameter between separate tags: "`anyOf` at the root". Nullopt: none.
[[nodiscard]] std::optional<std::string> keyword_not_enforced(
    const nlohmann::ordered_json& parameters, ToolCallFormat format);

}  // namespace heddle::parsers

// SPDX-License-Identifier: Apache-2.0
// The fields for tools in a chat: the tools, and whether an answer may, must or must not call one.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "parsers/formats.h"
#include "server/call/field_reader.h"

namespace heddle::server {

struct CallContext;

struct ToolChoice {
  enum class Kind : uint8_t {
    kNone,      // no calls; the tools are not shown
    kAuto,      // the model decides whether to call a tool
    kRequired,  // at least one call
    kNamed,     // a call of the tool `name`
  };

  Kind kind = Kind::kAuto;
  std::string name;

  // Whether the answer must contain a call (answer_form.h).
  [[nodiscard]] bool forces_call() const { return kind == Kind::kRequired || kind == Kind::kNamed; }
};

struct ToolFields {
  std::shared_ptr<const nlohmann::ordered_json> tools;  // checked and not empty; null: no tools
  ToolChoice choice;
  bool parallel_calls = true;
  // Names of the custom tools; `tools` contains them as functions of one text.
  std::set<std::string, std::less<>> custom;

  // The format in which the answer writes calls: the served model's, or, if it has none and a call
  // is forced, plain JSON, which the prompt must then explain (chat_prompt.h).
  [[nodiscard]] parsers::ToolCallFormat format(parsers::ToolCallFormat served) const {
    const bool is_none = served == parsers::ToolCallFormat::kNone;
    return is_none && choice.forces_call() ? parsers::ToolCallFormat::kJson : served;
  }

  // The tools that the template shows and the answer may call; null if there are none.
  [[nodiscard]] std::shared_ptr<const nlohmann::ordered_json> usable() const {
    return choice.kind == ToolChoice::Kind::kNone ? nullptr : tools;
  }
};

// Reads `tools`, `tool_choice` and `parallel_tool_calls`. Errors are left in `fields`.
ToolFields read_tool_fields(FieldReader& fields);

// Converts one entry of another API's `tools`, named `param` in errors, to the function of a chat's
// tool; leaves it null for a tool that the servers of that API run themselves.
using ReadForeignTool = std::optional<ApiError> (*)(FieldReader& tool, const std::string& param,
                                                    nlohmann::ordered_json& function);

// Converts the tools to the `tools` of `chat`, which stays without the field if there is no
// function. The original names are added to `names`.
std::optional<ApiError> translate_tools(FieldReader& fields, ReadForeignTool read,
                                        nlohmann::ordered_json& chat, FieldNames& names);

// Logs once each type of `tools` that is not in `used`: tools that the servers of another API run
// themselves, which are dropped.
void note_unused_tools(FieldReader& fields, const CallContext& context,
                       std::initializer_list<std::string_view> used);

}  // namespace heddle::server

// SPDX-License-Identifier: Apache-2.0
// Custom tools as functions of one text: {"type": "custom", "name": "p", "format": ..} is shown to
// the model as a function p with the argument `input`, whose calls are shown to the client as text.
//
// Threading: values and functions without state.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "parsers/answer_delta.h"
#include "server/call/field_reader.h"

namespace heddle::server {

// The description and the parameters of a custom tool as a function's. `param` names it in errors,
// which stay in `tool`.
[[nodiscard]] nlohmann::ordered_json function_of_custom(FieldReader& tool,
                                                        const std::string& param);

// The text in the arguments of a custom tool's call: {"input": ".."}. Arguments in any other form
// are returned unchanged.
[[nodiscard]] std::string custom_input(std::string_view arguments);

// The text of a custom tool's call; of one that was cut, as far as it was written.
[[nodiscard]] std::string custom_input(const parsers::ToolCall& call);

// The text of a custom tool's call, read while its arguments arrive.
class CustomInputReader {
 public:
  // The characters of the text that are complete with these bytes of the arguments' JSON.
  [[nodiscard]] std::string add(std::string_view json);

 private:
  enum class Part { kBefore, kText, kAfter };

  void add_character(char byte, std::string& text);

  Part part_ = Part::kBefore;
  std::string head_;    // the JSON before the text
  std::string escape_;  // the beginning of an escaped character
};

}  // namespace heddle::server

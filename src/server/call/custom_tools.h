// SPDX-License-Identifier: Apache-2.0
// Custom tools as functions of one text. The model sees {"type": "custom", "name": "p", "format":
// ..} as a function p with the argument `input`; the client sees its calls as texts.
//
// Threading: plain values and functions without state.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "parsers/answer_delta.h"
#include "server/call/field_reader.h"

namespace heddle::server {

// A custom tool's description and parameters in the form of a function. `param` names the tool in
// errors, which are left in `tool`.
[[nodiscard]] nlohmann::ordered_json function_of_custom(FieldReader& tool,
                                                        const std::string& param);

// The text in the arguments of a custom tool's call: {"input": ".."}. Arguments in any other form
// are returned unchanged.
[[nodiscard]] std::string custom_input(std::string_view arguments);

// The text of a custom tool's call. For a call that was cut off, the part that was written.
[[nodiscard]] std::string custom_input(const parsers::ToolCall& call);

// Extracts the text of a custom tool's call while its arguments arrive.
class CustomInputReader {
 public:
  // Adds bytes of the arguments' JSON. Returns the characters of the text that they complete.
  [[nodiscard]] std::string add(std::string_view json);

 private:
  enum class Part { kBefore, kText, kAfter };

  void add_character(char byte, std::string& text);

  Part part_ = Part::kBefore;
  std::string head_;    // the JSON before the text, collected so far
  std::string escape_;  // an escape sequence that is not complete yet
};

}  // namespace heddle::server

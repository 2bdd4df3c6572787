// SPDX-License-Identifier: Apache-2.0
// The tools of a request to /v1/responses as functions of a chat, and calls of these functions as
// the items that the client expects.
//
//   {"type": "function", "name": "f", ..}            f
//   {"type": "custom", "name": "p", "format": ..}    p, a function of one text, `input`
//   {"type": "namespace", "name": "n", "tools": [..]}  n__f for each function or custom tool f
//
// Tools that OpenAI's servers run themselves are dropped.
//
// Threading: plain values and functions without state.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/call/field_reader.h"
#include "server/http/api_error.h"

namespace heddle::server {

// The name of a namespace's tool in the prompt, as "mcp__fs__read". `space` may be empty.
[[nodiscard]] std::string name_in_prompt(std::string_view space, std::string_view name);

class ResponseTools {
 public:
  struct Tool {
    std::string name;   // name of the tool in the client's request
    std::string space;  // namespace; empty: none
    bool is_custom = false;
    std::string param;  // path of the tool in the request, as "tools[1].tools[0]"

    [[nodiscard]] bool is_same(const Tool& other) const {
      return name == other.name && space == other.space && is_custom == other.is_custom;
    }
  };

  // Converts `tools` and `tool_choice` to those of `chat`, which stays without tools if there is no
  // function. Error: also if two tools would have the same name in the prompt.
  std::optional<ApiError> read(FieldReader& fields, nlohmann::ordered_json& chat);

  // The tool for a function that a call names; null if the client has no such tool.
  [[nodiscard]] const Tool* find(const std::string& function) const;

  // Adds the field names to `names`, so that errors name those of the request.
  void name_fields(FieldNames& names) const;

 private:
  std::optional<ApiError> read_list(const nlohmann::ordered_json& tools, const std::string& param,
                                    std::string_view space, const std::string& about,
                                    nlohmann::ordered_json& functions);
  std::optional<ApiError> read_choice(FieldReader& fields, nlohmann::ordered_json& chat) const;
  std::optional<std::string> function_of(const nlohmann::ordered_json& chosen) const;
  [[nodiscard]] nlohmann::ordered_json allowed(const nlohmann::ordered_json& choice) const;

  std::map<std::string, Tool, std::less<>> tools_;  // tools, keyed by the function's name
  std::vector<std::string> order_;                  // function names in the order of the request
};

}  // namespace heddle::server

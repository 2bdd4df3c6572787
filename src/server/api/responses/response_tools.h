// SPDX-License-Identifier: Apache-2.0
// The tools of a request to /v1/responses as the functions of a chat, and calls of these functions
// as the items that the client knows.
//
//   {"type": "function", "name": "f", ..}            f
//   {"type": "custom", "name": "p", "format": ..}    p, a function of one text, `input`
//   {"type": "namespace", "name": "n", "tools": [..]}  n__f for each function or custom tool f
//
// Tools that OpenAI's servers run themselves are left out.
//
// Threading: values and functions without state.
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

// The name of a namespace's tool in the prompt: "mcp__fs__read". `space` may be empty.
[[nodiscard]] std::string name_in_prompt(std::string_view space, std::string_view name);

class ResponseTools {
 public:
  struct Tool {
    std::string name;   // as the client knows it
    std::string space;  // the namespace; empty: none
    bool is_custom = false;
    std::string param;  // its place in the request: "tools[1].tools[0]"

    [[nodiscard]] bool is_same(const Tool& other) const {
      return name == other.name && space == other.space && is_custom == other.is_custom;
    }
  };

  // Reads `tools` and `tool_choice` into those of `chat`, which gets none where there is no
  // function. Error: also where two tools would have one name in the prompt.
  std::optional<ApiError> read(FieldReader& fields, nlohmann::ordered_json& chat);

  // The tool behind the function that a call names; null: the client has none of that name.
  [[nodiscard]] const Tool* find(const std::string& function) const;

  // Puts the names of the request in the place of those of the chat.
  void name_fields(FieldNames& names) const;

 private:
  std::optional<ApiError> read_list(const nlohmann::ordered_json& tools, const std::string& param,
                                    std::string_view space, const std::string& about,
                                    nlohmann::ordered_json& functions);
  std::optional<ApiError> read_choice(FieldReader& fields, nlohmann::ordered_json& chat) const;
  std::optional<std::string> function_of(const nlohmann::ordered_json& chosen) const;
  [[nodiscard]] nlohmann::ordered_json allowed(const nlohmann::ordered_json& choice) const;

  std::map<std::string, Tool, std::less<>> tools_;  // by the function's name
  std::vector<std::string> order_;                  // of the functions
};

}  // namespace heddle::server

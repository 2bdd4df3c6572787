// SPDX-License-Identifier: Apache-2.0
// ToolNames: the tools of a request and their parameters, by the names that a model may write for
// them. A name that is written otherwise than the request has it counts as the one that it can only
// mean: "functions.get_weather", "get_weather.call", "call_get_weather_0", "\"get_weather\"",
// "GetWeather", "get_wether".
//
// Threading: thread-safe once made. Cost: O(tools) to make, O(name) to look one up, for a name that
//            is misspelt O(name^2) for each of the first kMaxCompared tools.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "parsers/json_scanner.h"
#include "parsers/marker_search.h"

namespace heddle::parsers {

class ToolNames {
 public:
  static constexpr size_t kMaxCompared = 64;

  // `tools` is a request's list; may be null.
  explicit ToolNames(std::shared_ptr<const nlohmann::ordered_json> tools);

  [[nodiscard]] bool has(std::string_view tool) const;

  // The tool's name; an unknown name is returned without quotes and space around it.
  [[nodiscard]] std::string resolve(std::string_view written) const;

  [[nodiscard]] bool has_parameter(std::string_view tool, std::string_view parameter) const;
  [[nodiscard]] std::string resolve_parameter(std::string_view tool,
                                              std::string_view written) const;

  // The tool's parameter that is meant; nothing where it means none.
  [[nodiscard]] std::optional<std::string> meant_parameter(std::string_view tool,
                                                           std::string_view written) const;

  // The parameters in the order of the schema.
  [[nodiscard]] const std::vector<std::string>& parameters(std::string_view tool) const;

  // The JSON of a value that is written as a number of another notation than JSON's: a text where
  // the parameter may be one. Nothing where it is no number.
  [[nodiscard]] std::optional<std::string> meant_number(std::string_view tool,
                                                        std::string_view parameter,
                                                        std::string_view written) const;

  // For the arguments of a tool. This outlives them.
  [[nodiscard]] JsonScanner::KeyReader key_reader(std::string tool) const;
  [[nodiscard]] JsonScanner::NumberReader number_reader(std::string tool) const;

  // The only tool that has such a parameter; empty where there is none or there are several.
  [[nodiscard]] std::string only_tool_with(std::string_view parameter) const;

  // Whether `text` begins with a complete tool name, returned in `name`.
  [[nodiscard]] Match begins_with_name(std::string_view text, std::string_view& name) const;

 private:
  // Names, and what each can be written like.
  struct NameIndex {
    std::vector<std::string> in_order;
    std::set<std::string, std::less<>> names;
    std::unordered_map<std::string, std::string> by_word;  // "" if several tools share the word

    void add(std::string_view name);
    [[nodiscard]] std::string resolve(std::string_view written) const;
  };

  std::shared_ptr<const nlohmann::ordered_json> list_;
  NameIndex tools_;
  std::map<std::string, NameIndex, std::less<>> parameters_;  // by tool
  std::unordered_map<std::string, std::string> only_tools_;   // by parameter
};

}  // namespace heddle::parsers

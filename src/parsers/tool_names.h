// SPDX-License-Identifier: Apache-2.0
// ToolNames: the tools of a request and their parameters, found by the names that a model writes. A
// name that differs from all names in the request counts as the only one that it can mean:
// "functions.get_weather", "get_weather.call", "call_get_weather_0", "\"get_weather\"",
// "GetWeather", "get_wether".
//
// Threading: thread-safe after construction. Cost: O(tools) to construct and O(name) per look-up;
// for a misspelt name O(name^2) for each of the first kMaxCompared tools.
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

  // `tools` is the request's list of tools; may be null.
  explicit ToolNames(std::shared_ptr<const nlohmann::ordered_json> tools);

  [[nodiscard]] bool has(std::string_view tool) const;

  // The tool that `written` means; an unknown name is returned without quotes and space around it.
  [[nodiscard]] std::string resolve(std::string_view written) const;

  [[nodiscard]] bool has_parameter(std::string_view tool, std::string_view parameter) const;
  [[nodiscard]] std::string resolve_parameter(std::string_view tool,
                                              std::string_view written) const;

  // The parameter of the tool that is meant; none if the name means none of them.
  [[nodiscard]] std::optional<std::string> meant_parameter(std::string_view tool,
                                                           std::string_view written) const;

  // The tool's parameters in the order of its schema.
  [[nodiscard]] const std::vector<std::string>& parameters(std::string_view tool) const;

  // The JSON value of a text that is a number in another notation than JSON's; a string if the
  // parameter may be a string. None if the text is not a number.
  [[nodiscard]] std::optional<std::string> meant_number(std::string_view tool,
                                                        std::string_view parameter,
                                                        std::string_view written) const;

  // The KeyReader for the arguments of a tool. This object must outlive it.
  [[nodiscard]] JsonScanner::KeyReader key_reader(std::string tool) const;
  [[nodiscard]] JsonScanner::NumberReader number_reader(std::string tool) const;

  // The only tool that has this parameter; empty if no tool or several tools have it.
  [[nodiscard]] std::string only_tool_with(std::string_view parameter) const;

  // Whether `text` begins with a complete tool name, which `name` is set to.
  [[nodiscard]] Match begins_with_name(std::string_view text, std::string_view& name) const;

 private:
  // Names, and the spellings by which they are found.
  struct NameIndex {
    std::vector<std::string> in_order;
    std::set<std::string, std::less<>> names;
    // empty text if several tools share the word
    std::unordered_map<std::string, std::string> by_word;

    void add(std::string_view name);
    [[nodiscard]] std::string resolve(std::string_view written) const;
  };

  std::shared_ptr<const nlohmann::ordered_json> list_;
  NameIndex tools_;
  std::map<std::string, NameIndex, std::less<>> parameters_;  // parameters of each tool
  // the only tool that has a parameter, by parameter
  std::unordered_map<std::string, std::string> only_tools_;
};

}  // namespace heddle::parsers

// SPDX-License-Identifier: Apache-2.0
// ParameterType: which JSON the plain text of a tool's parameter stands for, by the tool's schema.
// Formats that write arguments as tagged text ("<parameter=count>5</parameter>") do not tell 5 from
// "5"; the schema does.
//
// Threading: thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace heddle::parsers {

class ParameterType {
 public:
  // A string, as all parameters are that no schema knows.
  ParameterType() = default;

  // Of the parameter of a tool. `tools` is a request's list of {"function": {"name": ..,
  // "parameters": {"properties": ..}}}; what is not of that form is not there.
  static ParameterType of(const nlohmann::ordered_json& tools, std::string_view tool,
                          std::string_view parameter);

  // Any JSON; text that is none is a string.
  static ParameterType json();

  // A string whatever the text is, "null" too.
  static ParameterType text();

  // Whether the value is a string unless it reads "null", so that it need not be complete to be
  // emitted.
  [[nodiscard]] bool is_string() const { return kinds_.empty() || kinds_.front() == Kind::kString; }

  // Whether "null", in any case, is null.
  [[nodiscard]] bool may_be_null() const { return may_be_null_; }

  // The JSON text of a complete value: by the first of the types that fits, else a string. Booleans
  // are true for "true" in any case and false for all else.
  [[nodiscard]] std::string to_json(std::string_view text) const;

 private:
  enum class Kind : uint8_t { kString, kInteger, kNumber, kBoolean, kStructure };

  void add(const nlohmann::ordered_json& schema, int depth);
  void add_name(std::string_view name);

  std::vector<Kind> kinds_;
  bool may_be_null_ = true;
};

// Whether the text is "null" in any case.
[[nodiscard]] bool is_null_word(std::string_view text);

// Whether the text may go on to be "null" in any case, or is.
[[nodiscard]] bool may_become_null_word(std::string_view text);

}  // namespace heddle::parsers

// SPDX-License-Identifier: Apache-2.0
#include "server/call/custom_tools.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// The description of a custom tool for the model. A grammar is only a hint and not enforced.
std::string custom_description(FieldReader& tool, const std::string& param) {
  std::string text = tool.string("description").value_or("");
  const Json* const format = tool.object("format");
  if (format == nullptr) return text;
  FieldReader inner(*format, param + ".format.");
  const auto syntax = inner.string("syntax");
  const auto definition = inner.string("definition");
  if (inner.error()) tool.fail(*inner.error());
  if (!definition) return text;
  if (!text.empty()) text += "\n\n";
  return text + fmt::format("The input follows this {} grammar:\n{}", syntax.value_or("lark"),
                            *definition);
}

}  // namespace

Json function_of_custom(FieldReader& tool, const std::string& param) {
  Json function = Json::object();
  if (std::string text = custom_description(tool, param); !text.empty()) {
    function["description"] = std::move(text);
  }
  function["parameters"] = {
      {"type", "object"},
      {"properties",
       {{"input", {{"type", "string"}, {"description", "The whole input of the tool, as text"}}}}},
      {"required", Json::array({"input"})},
      {"additionalProperties", false}};
  return function;
}

std::string custom_input(std::string_view arguments) {
  const Json object = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (object.is_object()) {
    const auto input = object.find("input");
    if (input != object.end() && input->is_string()) return input->get<std::string>();
  }
  return std::string(arguments);
}

std::string custom_input(const parsers::ToolCall& call) {
  return call.complete ? custom_input(call.arguments) : CustomInputReader().add(call.arguments);
}

std::string CustomInputReader::add(std::string_view json) {
  constexpr std::string_view kHead = R"({"input":")";
  std::string text;
  for (const char byte : json) {
    if (part_ == Part::kText) add_character(byte, text);
    if (part_ != Part::kBefore) continue;
    // Ignores blanks between the tokens of the head; the tokens themselves contain none.
    if (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r') continue;
    head_ += byte;
    if (!kHead.starts_with(head_)) part_ = Part::kAfter;
    if (head_ == kHead) part_ = Part::kText;
  }
  return text;
}

void CustomInputReader::add_character(char byte, std::string& text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  constexpr size_t kUnit = 6;  // bytes of an escaped UTF-16 unit, as \u12ab
  const bool is_lone =
      (escape_.size() == kUnit && byte != '\\') || (escape_.size() == kUnit + 1 && byte != 'u');
  if (is_lone) {  // the first half of a surrogate pair without the second
    text += kReplacement;
    escape_.erase(0, kUnit);
  }
  if (escape_.empty()) {
    if (byte == '"') {
      part_ = Part::kAfter;
    } else if (byte == '\\') {
      escape_ = byte;
    } else {
      text += byte;
    }
    return;
  }
  escape_ += byte;
  const bool is_unit = escape_.size() > 1 && escape_[1] == 'u';
  if (escape_.size() < 2 || (is_unit && escape_.size() % kUnit != 0)) return;
  const bool is_first_half = is_unit && escape_.size() == kUnit &&
                             (escape_[2] == 'd' || escape_[2] == 'D') &&
                             std::string_view("89abAB").find(escape_[3]) != std::string_view::npos;
  if (is_first_half) return;
  const Json character = Json::parse("\"" + escape_ + "\"", nullptr, /*allow_exceptions=*/false);
  text += character.is_string() ? character.get<std::string>() : std::string(kReplacement);
  escape_.clear();
}

}  // namespace heddle::server

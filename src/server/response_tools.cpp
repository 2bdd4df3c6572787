// SPDX-License-Identifier: Apache-2.0
#include "server/response_tools.h"

#include <utility>

#include <fmt/format.h>

#include "core/printable.h"
#include "server/body_fields.h"
#include "server/http_message.h"
#include "server/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSeparator = "__";

// The description of a custom tool for the model. A grammar is a hint: the answer is not held to
// it.
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

std::string name_in_prompt(std::string_view space, std::string_view name) {
  if (space.empty()) return std::string(name);
  return fmt::format("{}{}{}", space, space.ends_with(kSeparator) ? "" : kSeparator, name);
}

Json custom_arguments(std::string_view input) { return {{"input", input}}; }

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
    // Blanks may stand between the parts of the head, none of which has one.
    if (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r') continue;
    head_ += byte;
    if (!kHead.starts_with(head_)) part_ = Part::kAfter;
    if (head_ == kHead) part_ = Part::kText;
  }
  return text;
}

void CustomInputReader::add_character(char byte, std::string& text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  constexpr size_t kUnit = 6;  // \u12ab
  const bool is_lone =
      (escape_.size() == kUnit && byte != '\\') || (escape_.size() == kUnit + 1 && byte != 'u');
  if (is_lone) {  // the first half of a pair without the second
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

std::optional<ApiError> ResponseTools::read(FieldReader& fields, Json& chat) {
  const Json* const tools = fields.array(Body::kResponsesPrompt["tools"]);
  if (fields.error()) return fields.error();
  Json functions = Json::array();
  if (tools != nullptr) {
    if (auto error = read_list(*tools, "tools", {}, {}, functions)) return error;
  }
  if (!functions.empty()) chat["tools"] = std::move(functions);
  return read_choice(fields, chat);
}

std::optional<ApiError> ResponseTools::read_list(const Json& tools, const std::string& param,
                                                 std::string_view space, const std::string& about,
                                                 Json& functions) {
  // The description of a namespace stands before that of its first tool.
  std::string before = about;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string own = fmt::format("{}[{}]", param, i);
    if (!tools[i].is_object()) return invalid_type(own, "an object");
    FieldReader tool(tools[i], own + ".");
    const std::string type = tool.string("type").value_or("");
    const auto name = tool.string("name");
    if (tool.error()) return tool.error();
    if (type.empty()) return missing_parameter(own + ".type");
    if (type != "function" && type != "custom" && type != "namespace") continue;
    if (!name || name->empty()) return missing_parameter(own + ".name");
    if (type == "namespace") {
      const Json* const inner = tool.array("tools");
      const std::string text = tool.string("description").value_or("");
      if (tool.error()) return tool.error();
      if (inner == nullptr) return missing_parameter(own + ".tools");
      if (auto error =
              read_list(*inner, own + ".tools", name_in_prompt(space, *name), text, functions)) {
        return error;
      }
      continue;
    }
    const bool is_custom = type == "custom";
    Json function = {{"name", name_in_prompt(space, *name)}};
    if (is_custom) {
      function.update(function_of_custom(tool, own));
    } else {
      for (const char* field : {"description", "parameters", "strict"}) {
        if (const Json* value = tool.find(field)) function[field] = *value;
      }
    }
    const auto text = tool.string("description");
    if (tool.error()) return tool.error();
    if (!before.empty()) {
      const std::string shown = function.value("description", std::string());
      function["description"] =
          shown.empty() ? std::exchange(before, {}) : std::exchange(before, {}) + "\n\n" + shown;
    }
    const auto function_name = function["name"].get<std::string>();
    const Tool named{
        .name = *name, .space = std::string(space), .is_custom = is_custom, .param = own};
    const auto [known, is_new] = tools_.emplace(function_name, named);
    if (!is_new && !known->second.is_same(named)) {
      return invalid_value(
          own + ".name",
          fmt::format("`{}` and `{}` are both \"{}\" in the prompt; rename one of them.",
                      known->second.param, own, printable(function_name, 100)));
    }
    order_.push_back(function_name);
    functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return std::nullopt;
}

std::optional<ApiError> ResponseTools::read_choice(FieldReader& fields, Json& chat) const {
  const Json* const value = fields.find(Body::kTools["tool_choice"]);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) {
    chat["tool_choice"] = *value;
    return std::nullopt;
  }
  if (!value->is_object()) return invalid_type("tool_choice", "a string or an object");
  FieldReader choice(*value, "tool_choice.");
  const std::string type = choice.string("type").value_or("");
  const auto name = choice.string("name");
  if (choice.error()) return choice.error();
  if (type == "allowed_tools") {
    chat["tool_choice"] = allowed(*value);
    return std::nullopt;
  }
  if ((type != "function" && type != "custom") || !name) {
    return invalid_value("tool_choice",
                         "`tool_choice` must be none, auto, required, {\"type\": \"function\", "
                         "\"name\": ...}, {\"type\": \"custom\", \"name\": ...} or {\"type\": "
                         "\"allowed_tools\", \"mode\": ..., \"tools\": [...]}.");
  }
  chat["tool_choice"] = {{"type", "function"},
                         {"function", {{"name", function_of(*value).value_or(*name)}}}};
  return std::nullopt;
}

// The function that a choice names, with its namespace or without.
std::optional<std::string> ResponseTools::function_of(const Json& chosen) const {
  const Json name = chosen.value("name", Json());
  const Json space = chosen.value("namespace", Json());
  if (!name.is_string()) return std::nullopt;
  const auto text = name.get<std::string>();
  const std::string whole =
      name_in_prompt(space.is_string() ? space.get<std::string>() : std::string(), text);
  if (tools_.contains(whole)) return whole;
  const Tool* const tool = find(text);
  if (tool == nullptr) return std::nullopt;
  return name_in_prompt(tool->space, tool->name);
}

// Without what OpenAI's servers would run. A namespace stands for all of its tools.
Json ResponseTools::allowed(const Json& choice) const {
  Json functions = Json::array();
  const auto allow = [&functions](const std::string& name) {
    functions.push_back({{"type", "function"}, {"name", name}});
  };
  const Json listed = choice.value("tools", Json::array());
  for (const Json& tool : listed) {
    if (!tool.is_object()) continue;
    if (tool.value("type", Json()) == "namespace") {
      for (const auto& [function, own] : tools_) {
        if (tool.value("name", Json()) == own.space) allow(function);
      }
    } else if (const auto function = function_of(tool)) {
      allow(*function);
    }
  }
  return {{"type", "allowed_tools"},
          {"allowed_tools",
           {{"mode", choice.value("mode", Json("auto"))}, {"tools", std::move(functions)}}}};
}

const ResponseTools::Tool* ResponseTools::find(const std::string& function) const {
  if (const auto exact = tools_.find(function); exact != tools_.end()) return &exact->second;
  const Tool* found = nullptr;  // by its own name, where only one tool has that
  for (const auto& [name, tool] : tools_) {
    if (tool.name != function) continue;
    if (found != nullptr) return nullptr;
    found = &tool;
  }
  return found;
}

void ResponseTools::name_fields(FieldNames& names) const {
  for (size_t i = 0; i < order_.size(); ++i) {
    const Tool& tool = tools_.find(order_[i])->second;
    const std::string ours = fmt::format("tools[{}]", i);
    if (tool.is_custom) names.add(ours + ".function.parameters", tool.param + ".format");
    names.add(ours + ".function", tool.param);
    names.add(ours, tool.param);
  }
}

}  // namespace heddle::server

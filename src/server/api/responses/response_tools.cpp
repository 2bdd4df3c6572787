// SPDX-License-Identifier: Apache-2.0
#include "server/api/responses/response_tools.h"

#include <utility>

#include <fmt/format.h>

#include "core/printable.h"
#include "server/call/body_fields.h"
#include "server/call/custom_tools.h"
#include "server/http/http_message.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSeparator = "__";

}  // namespace

std::string name_in_prompt(std::string_view space, std::string_view name) {
  if (space.empty()) return std::string(name);
  return fmt::format("{}{}{}", space, space.ends_with(kSeparator) ? "" : kSeparator, name);
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
  // The description of a namespace is written before that of its first tool.
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

// The function that a choice names, with or without a namespace.
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

// The allowed tools without those that OpenAI's servers would run. A namespace means all of its
// tools.
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
  const Tool* found = nullptr;  // the only tool with this name, without its namespace
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

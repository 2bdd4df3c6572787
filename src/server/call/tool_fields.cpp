// SPDX-License-Identifier: Apache-2.0
#include "server/call/tool_fields.h"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/call/api_adapter.h"
#include "server/call/body_fields.h"
#include "server/call/chat_messages.h"
#include "server/call/custom_tools.h"
#include "server/http/http_message.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChoices =
    "`tool_choice` must be none, auto, required, {\"type\": \"function\", \"function\": "
    "{\"name\": ...}}, {\"type\": \"custom\", \"custom\": {\"name\": ...}} or {\"type\": "
    "\"allowed_tools\", \"allowed_tools\": {\"mode\": ..., "
    "\"tools\": [...]}}.";

// The name in {"type": "function", "function": {"name": ..}}, or in the same form for a custom
// tool; empty for anything else.
std::string chosen_name(const Json& choice) {
  const auto type = choice.value("type", Json()) == "custom" ? "custom" : "function";
  const auto tool = choice.find(type);
  if (tool == choice.end() || !tool->is_object()) return {};
  const auto name = tool->find("name");
  return name != tool->end() && name->is_string() ? name->get<std::string>() : std::string();
}

// A custom tool as a function of one text. `param` names the tool in errors, which are left in
// `fields`.
Json function_of_custom_tool(const Json& custom, const std::string& param, FieldReader& fields) {
  Json plain = custom;  // a copy with the members of `format` where the Responses API has them
  if (const auto format = plain.find("format"); format != plain.end() && format->is_object()) {
    if (const auto grammar = format->find("grammar");
        grammar != format->end() && grammar->is_object()) {
      *format = Json(*grammar);
    }
  }
  FieldReader tool(plain, param + ".");
  Json function = {{"name", custom["name"]}};
  function.update(function_of_custom(tool, param));
  if (tool.error()) fields.fail(*tool.error());
  return {{"type", "function"}, {"function", std::move(function)}};
}

// Applies {"type": "allowed_tools", "allowed_tools": {"mode": .., "tools": [..]}}, which in
// Responses has no inner object: `tools` keeps those that are named, and the mode becomes the
// choice.
Json allow_tools(const Json& choice, Json& tools) {
  const auto inner = choice.find("allowed_tools");
  const Json& allowed = inner != choice.end() && inner->is_object() ? *inner : choice;
  std::set<std::string> names;
  if (const auto listed = allowed.find("tools"); listed != allowed.end() && listed->is_array()) {
    for (const Json& tool : *listed) {
      if (!tool.is_object()) continue;
      const Json name = tool.value("name", Json(chosen_name(tool)));
      if (name.is_string()) names.insert(name.get<std::string>());
    }
  }
  Json kept = Json::array();
  for (Json& tool : tools) {
    if (names.contains(tool["function"]["name"].get_ref<const std::string&>())) {
      kept.push_back(std::move(tool));
    }
  }
  tools = std::move(kept);
  return allowed.value("mode", Json("auto"));
}

ToolChoice read_choice(const Json& choice, FieldReader& fields) {
  if (choice == "none") return {.kind = ToolChoice::Kind::kNone};
  if (choice == "auto") return {.kind = ToolChoice::Kind::kAuto};
  if (choice == "required") return {.kind = ToolChoice::Kind::kRequired};
  std::string name = choice.is_object() ? chosen_name(choice) : std::string();
  if (name.empty()) fields.fail(invalid_value("tool_choice", std::string(kChoices)));
  return {.kind = ToolChoice::Kind::kNamed, .name = std::move(name)};
}

}  // namespace

ToolFields read_tool_fields(FieldReader& fields) {
  ToolFields result;
  const Json* const tools = fields.array(Body::kTools["tools"]);
  if (tools != nullptr && !tools->empty()) {
    if (auto error = check_tools(*tools)) {
      fields.fail(std::move(*error));
      return result;
    }
    Json functions = *tools;
    for (size_t i = 0; i < functions.size(); ++i) {
      if (functions[i]["type"] != "custom") continue;
      const Json custom = std::move(functions[i]["custom"]);
      result.custom.insert(custom["name"].get<std::string>());
      functions[i] = function_of_custom_tool(custom, fmt::format("tools[{}].custom", i), fields);
    }
    result.tools = std::make_shared<const Json>(std::move(functions));
  }
  result.parallel_calls = fields.flag(Body::kTools["parallel_tool_calls"]);
  const Json* const choice = fields.find(Body::kTools["tool_choice"]);
  if (choice != nullptr && choice->is_object() &&
      choice->value("type", Json()) == "allowed_tools") {
    Json allowed = result.tools == nullptr ? Json::array() : *result.tools;
    const Json mode = allow_tools(*choice, allowed);
    if (allowed.empty()) {
      fields.fail(invalid_value("tool_choice", "`tool_choice` allows none of the `tools`."));
      return result;
    }
    result.tools = std::make_shared<const Json>(std::move(allowed));
    result.choice = read_choice(mode, fields);
  } else if (choice != nullptr) {
    result.choice = read_choice(*choice, fields);
  }
  if (!result.choice.forces_call()) return result;
  if (result.tools == nullptr) {
    fields.fail(invalid_value("tool_choice",
                              "`tool_choice` asks for a tool, but `tools` has none with a schema, "
                              "which the model could be shown."));
  } else if (result.choice.kind == ToolChoice::Kind::kNamed &&
             std::none_of(result.tools->begin(), result.tools->end(), [&](const Json& tool) {
               return tool["function"]["name"] == result.choice.name;
             })) {
    fields.fail(invalid_value("tool_choice",
                              fmt::format("`tool_choice` names \"{}\", which is not among `tools`.",
                                          printable(result.choice.name, 100))));
  }
  return result;
}

std::optional<ApiError> translate_tools(FieldReader& fields, ReadForeignTool read, Json& chat,
                                        FieldNames& names) {
  const Json* tools = fields.array(Body::kTools["tools"]);
  if (fields.error()) return fields.error();
  if (tools == nullptr) return std::nullopt;
  Json functions = Json::array();
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string param = fmt::format("tools[{}]", i);
    if (!(*tools)[i].is_object()) return invalid_type(param, "an object");
    FieldReader tool((*tools)[i], param + ".");
    Json function;
    if (auto error = read(tool, param, function)) return error;
    if (!function.is_null()) {
      const std::string ours = fmt::format("tools[{}]", functions.size());
      names.add(ours, param);
      names.add(ours + ".function", param);
      names.add(ours + ".function.parameters", param + ".input_schema");
      functions.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  if (!functions.empty()) chat["tools"] = std::move(functions);
  return std::nullopt;
}

void note_unused_tools(FieldReader& fields, const CallContext& context,
                       std::initializer_list<std::string_view> used) {
  const Json* const tools = fields.array(Body::kTools["tools"]);
  if (tools == nullptr) return;
  for (const Json& tool : *tools) {
    const Json type = tool.is_object() ? tool.value("type", Json()) : Json();
    if (!type.is_string()) continue;
    const auto& name = type.get_ref<const std::string&>();
    if (std::ranges::find(used, name) == used.end()) {
      context.note_unused("tool type", name,
                          "tools without a schema are not shown to the model; give one that the "
                          "client runs a name, a description and a schema");
    }
    if (name != "namespace") continue;
    FieldReader space(tool);
    note_unused_tools(space, context, used);
  }
}

}  // namespace heddle::server

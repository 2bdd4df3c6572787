// SPDX-License-Identifier: Apache-2.0
#include "server/chat_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/http_message.h"
#include "server/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

const Json* find(const Json& object, std::string_view name) {
  const auto place = object.find(name);
  return place == object.end() || place->is_null() ? nullptr : &*place;
}

// Joins the text of content parts with spaces; thinking of an assistant goes to `reasoning`.
std::optional<ApiError> read_parts(const Json& parts, const std::string& param, bool is_assistant,
                                   std::string& text, std::string& reasoning) {
  bool first = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const std::string part_param = fmt::format("{}[{}]", param, i);
    if (!part.is_object()) return invalid_type(part_param, "an object");
    const Json* type = find(part, "type");
    if (type == nullptr) return missing_parameter(part_param + ".type");
    if (!type->is_string()) return invalid_type(part_param + ".type", "a string");
    const auto& name = type->get_ref<const std::string&>();
    const bool is_thinking = name == "thinking" || name == "reasoning";
    if (name == "text" || (is_thinking && is_assistant)) {
      const Json* value = find(part, "text");
      if (value == nullptr && is_thinking) value = find(part, name);
      if (value == nullptr || !value->is_string()) {
        return invalid_type(part_param + ".text", "a string");
      }
      const auto& content = value->get_ref<const std::string&>();
      if (is_thinking) {
        reasoning += content;
        continue;
      }
      if (!first) text += ' ';
      first = false;
      text += content;
    } else if (name == "image_url" || name == "video_url" || name == "audio_url" ||
               name == "input_audio" || name == "image" || name == "file") {
      return ApiError{
          .code = "unsupported_parameter",
          .message = fmt::format("`{}` is a part of type {}; this model takes text only.",
                                 part_param, name),
          .param = part_param};
    } else {
      return invalid_value(
          part_param + ".type",
          fmt::format("`{}.type` is \"{}\"; it must be \"text\".", part_param, name.substr(0, 40)));
    }
  }
  return std::nullopt;
}

// Checks tool calls; their arguments, JSON text on the wire, become objects.
std::optional<ApiError> read_tool_calls(const Json& calls, const std::string& param, Json& result) {
  if (!calls.is_array()) return invalid_type(param, "a list");
  result = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string call_param = fmt::format("{}[{}]", param, i);
    const Json* function = calls[i].is_object() ? find(calls[i], "function") : nullptr;
    if (function == nullptr || !function->is_object()) {
      return missing_parameter(call_param + ".function");
    }
    const Json* name = find(*function, "name");
    if (name == nullptr || !name->is_string()) {
      return missing_parameter(call_param + ".function.name");
    }
    Json call = calls[i];
    Json& arguments = call["function"]["arguments"];
    if (arguments.is_null()) arguments = Json::object();
    if (arguments.is_string()) {
      const std::string text = arguments.get<std::string>();
      if (text.empty()) {
        arguments = Json::object();
      } else if (parse_json_object(text, arguments)) {
        arguments = nullptr;
      }
    }
    if (!arguments.is_object()) {
      return invalid_value(
          call_param + ".function.arguments",
          fmt::format("`{}.function.arguments` must be the text of a JSON object.", call_param));
    }
    if (find(call, "type") == nullptr) call["type"] = "function";
    result.push_back(std::move(call));
  }
  return std::nullopt;
}

std::optional<ApiError> read_message(const Json& message, const std::string& param, Json& result) {
  if (!message.is_object()) return invalid_type(param, "an object");
  const Json* role_field = find(message, "role");
  if (role_field == nullptr) return missing_parameter(param + ".role");
  if (!role_field->is_string()) return invalid_type(param + ".role", "a string");
  std::string role = lower_case(role_field->get_ref<const std::string&>());
  constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                      "assistant", "tool",      "function"};
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    return invalid_value(
        param + ".role",
        fmt::format("`{}.role` is \"{}\"; it must be one of system, developer, user, "
                    "assistant, tool, function.",
                    param, role.substr(0, 40)));
  }
  const bool is_assistant = role == "assistant";
  result = message;
  result["role"] = role;

  std::string text;
  std::string reasoning;
  const Json* content = find(message, "content");
  const Json* calls = find(message, "tool_calls");
  if (content == nullptr) {
    if (!is_assistant || (calls == nullptr && find(message, "reasoning_content") == nullptr &&
                          find(message, "reasoning") == nullptr)) {
      return missing_parameter(param + ".content");
    }
  } else if (content->is_string()) {
    text = content->get<std::string>();
  } else if (content->is_array()) {
    if (auto error = read_parts(*content, param + ".content", is_assistant, text, reasoning)) {
      return error;
    }
  } else {
    return invalid_type(param + ".content", "a string or a list of parts");
  }
  result["content"] = std::move(text);

  if (is_assistant) {
    for (const char* name : {"reasoning_content", "reasoning"}) {
      const Json* value = find(message, name);
      if (value == nullptr) continue;
      if (!value->is_string()) return invalid_type(fmt::format("{}.{}", param, name), "a string");
      if (reasoning.empty()) reasoning = value->get<std::string>();
    }
    result.erase("reasoning");
    result.erase("reasoning_content");
    if (!reasoning.empty()) result["reasoning_content"] = std::move(reasoning);
    result.erase("tool_calls");
    if (calls != nullptr) {
      Json checked;
      if (auto error = read_tool_calls(*calls, param + ".tool_calls", checked)) return error;
      if (!checked.empty()) result["tool_calls"] = std::move(checked);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> normalise_messages(const Json& messages, Json& normalised) {
  if (!messages.is_array()) return invalid_type("messages", "a list");
  if (messages.empty()) return invalid_value("messages", "`messages` is empty.");
  normalised = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message;
    if (auto error = read_message(messages[i], fmt::format("messages[{}]", i), message)) {
      return error;
    }
    normalised.push_back(std::move(message));
  }
  return std::nullopt;
}

std::optional<ApiError> check_tools(const Json& tools) {
  const auto invalid = [](const std::string& param, std::string message) {
    return ApiError{.code = "invalid_tool", .message = std::move(message), .param = param};
  };
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string param = fmt::format("tools[{}]", i);
    const Json& tool = tools[i];
    const Json* type = tool.is_object() ? find(tool, "type") : nullptr;
    const Json* function = tool.is_object() ? find(tool, "function") : nullptr;
    if (type == nullptr || *type != "function" || function == nullptr || !function->is_object()) {
      return invalid(param, fmt::format("`{}` must be {{\"type\": \"function\", \"function\": "
                                        "{{\"name\": ...}}}}.",
                                        param));
    }
    const Json* name = find(*function, "name");
    if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty()) {
      return invalid(param + ".function.name",
                     fmt::format("`{}.function.name` must be a name.", param));
    }
    const Json* parameters = find(*function, "parameters");
    if (parameters != nullptr && !parameters->is_object()) {
      return invalid(param + ".function.parameters",
                     fmt::format("`{}.function.parameters` must be a JSON Schema object.", param));
    }
  }
  return std::nullopt;
}

}  // namespace heddle::server

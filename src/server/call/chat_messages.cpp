// SPDX-License-Identifier: Apache-2.0
#include "server/call/chat_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/call/document_part.h"
#include "server/call/history_repair.h"
#include "server/http/http_message.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Id that joins a `function_call`, OpenAI's old form of calls without ids, with its result.
constexpr const char* kOldCallId = "call_function";

// The text of a part; for an assistant also the text of a refusal.
std::optional<std::string> text_of_part(const Json& part, const std::string& type) {
  const Json* value = find_value(part, "text");
  if (value == nullptr) value = find_value(part, type);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

// Rules for reading the parts of a message.
struct PartRules {
  bool is_assistant = false;  // thinking parts are added to the reasoning
  // True: a part that is no text is an error; false: its type is shown as text.
  bool is_asked = false;
};

// Reads content parts; texts stay separate parts.
std::optional<ApiError> read_parts(const CallContext& context, const Json& parts,
                                   const std::string& param, const PartRules& rules, Json& texts,
                                   std::string& reasoning) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const std::string part_param = fmt::format("{}[{}]", param, i);
    if (part.is_string()) {
      texts.push_back({{"type", "text"}, {"text", part}});
      continue;
    }
    if (!part.is_object()) return invalid_type(part_param, "an object");
    const Json* type = find_value(part, "type");
    if (type == nullptr) return missing_parameter(part_param + ".type");
    if (!type->is_string()) return invalid_type(part_param + ".type", "a string");
    const auto& name = type->get_ref<const std::string&>();
    const bool is_thinking = rules.is_assistant && (name == "thinking" || name == "reasoning");
    if (name == "text" || name == "input_text" || name == "output_text" || name == "refusal" ||
        is_thinking) {
      std::optional<std::string> text = text_of_part(part, name);
      if (!text) {
        return invalid_type(fmt::format("{}.{}", part_param, name == "refusal" ? name : "text"),
                            "a string");
      }
      if (is_thinking) {
        reasoning += *text;
      } else {
        texts.push_back({{"type", "text"}, {"text", *std::move(text)}});
      }
    } else if (auto document = read_document_part(context, part, name, part_param)) {
      auto* const error = std::get_if<ApiError>(&*document);
      if (error != nullptr && rules.is_asked) return std::move(*error);
      texts.push_back({{"type", "text"},
                       {"text", error != nullptr ? fmt::format("[{}]", name)
                                                 : std::get<std::string>(std::move(*document))}});
    } else if (is_media_part(name) && !rules.is_asked) {
      texts.push_back({{"type", "text"}, {"text", fmt::format("[{}]", name)}});
    } else if (is_media_part(name)) {
      return ApiError{
          .code = "unsupported_parameter",
          .message = fmt::format("`{}` is a part of type {}; this model takes text only.",
                                 part_param, name),
          .param = part_param};
    } else if (rules.is_asked) {
      return invalid_value(
          part_param + ".type",
          fmt::format("`{}.type` is \"{}\"; it must be \"text\".", part_param, name.substr(0, 40)));
    } else {
      context.note_unused("type of a part", name);
      texts.push_back({{"type", "text"}, {"text", shown_as_text(name, part)}});
    }
  }
  return std::nullopt;
}

// A call in the form that templates expect. Its arguments stay as the model wrote them, because in
// a history nothing is an error (chat/spelled_json.h).
Json read_tool_call(const Json& value) {
  Json call = value;
  if (const Json* const custom = find_value(value, "custom"); custom != nullptr) {
    // A call of a custom tool, whose only argument is a text.
    if (find_value(value, "function") == nullptr) {
      call["type"] = "function";
      call["function"] = {{"name", (*custom)["name"]},
                          {"arguments", {{"input", (*custom)["input"]}}}};
    }
    call.erase("custom");
  }
  Json& arguments = call["function"]["arguments"];
  if (arguments.is_null() || arguments == "") {
    arguments = Json::object();
  } else if (!arguments.is_string() && !arguments.is_object()) {
    arguments = dump_json(arguments);
  }
  if (find_value(call, "type") == nullptr) call["type"] = "function";
  return call;
}

// Reads the fields that only an assistant's message has. `reasoning` is that of its parts.
void read_assistant(const Json& message, std::string reasoning, Json& result) {
  if (!reasoning.empty()) result["reasoning_content"] = std::move(reasoning);
  if (const Json* const refusal = find_value(message, "refusal");
      refusal != nullptr && result["content"] == "") {
    result["content"] = *refusal;
  }
  for (const char* const name : {"refusal", "tool_calls", "function_call"}) result.erase(name);
  if (const Json* const calls = find_value(message, "tool_calls")) {
    for (const Json& call : *calls) result["tool_calls"].push_back(read_tool_call(call));
  } else if (const Json* const old_call = find_value(message, "function_call")) {
    // OpenAI's form before `tool_calls`: its result is the next message with the role function.
    result["tool_calls"].push_back(read_tool_call({{"id", kOldCallId}, {"function", *old_call}}));
  }
}

std::optional<ApiError> read_message(const CallContext& context, const Json& message,
                                     const std::string& param, bool is_asked, Json& result) {
  if (!message.is_object()) return invalid_type(param, "an object");
  const Json* role_field = find_value(message, "role");
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
  if (role == "function" && find_value(message, "tool_call_id") == nullptr) {
    result["role"] = "tool";
    result["tool_call_id"] = kOldCallId;
  }

  Json texts = "";
  std::string reasoning;
  const Json* content = find_value(message, "content");
  if (content == nullptr) {
    return missing_parameter(param + ".content");
  } else if (content->is_string()) {
    texts = *content;
  } else if (content->is_array()) {
    texts = Json::array();
    const PartRules rules{.is_assistant = is_assistant, .is_asked = is_asked};
    if (auto error = read_parts(context, *content, param + ".content", rules, texts, reasoning)) {
      return error;
    }
    if (texts.empty()) texts = "";
  } else {
    return invalid_type(param + ".content", "a string or a list of parts");
  }
  result["content"] = std::move(texts);
  if (is_assistant) read_assistant(message, std::move(reasoning), result);
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> normalise_messages(const CallContext& context, const Json& messages,
                                           Json& normalised) {
  if (!messages.is_array()) return invalid_type("messages", "a list");
  if (messages.empty()) return invalid_value("messages", "`messages` is empty.");
  const size_t num_past = num_past_messages(messages);
  const HistoryRepair repair(context);
  bool follows_question = false;
  normalised = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool is_asked = i >= num_past;
    Json repaired;
    if (!is_asked) {
      repaired = messages[i];
      if (!repair.make_object(repaired)) continue;
      repair.chat_message(repaired, follows_question);
    }
    Json message;
    if (auto error = read_message(context, is_asked ? messages[i] : repaired,
                                  fmt::format("messages[{}]", i), is_asked, message)) {
      return error;
    }
    follows_question = message["role"] == "user" || message["role"] == "tool";
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
    const Json* const type = tool.is_object() ? find_value(tool, "type") : nullptr;
    const std::string kind =
        type != nullptr && type->is_string() ? type->get<std::string>() : std::string();
    if (!kind.empty() && kind != "function" && kind != "custom") {
      return invalid(
          param + ".type",
          fmt::format("`{}.type` is \"{}\"; this route takes tools of the types function "
                      "and custom, which the client runs itself.",
                      param, printable(kind, 40)));
    }
    const Json* const inner = kind.empty() ? nullptr : find_value(tool, kind);
    if (inner == nullptr || !inner->is_object()) {
      return invalid(param,
                     fmt::format("`{0}` must be {{\"type\": \"{1}\", \"{1}\": {{\"name\": ...}}}}.",
                                 param, kind == "custom" ? "custom" : "function"));
    }
    const std::string own = fmt::format("{}.{}", param, kind);
    const Json* const name = find_value(*inner, "name");
    if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty()) {
      return invalid(own + ".name", fmt::format("`{}.name` must be a name.", own));
    }
    const Json* const description = find_value(*inner, "description");
    if (description != nullptr && !description->is_string()) {
      return invalid(own + ".description", fmt::format("`{}.description` must be a string.", own));
    }
    const char* const shape = kind == "custom" ? "format" : "parameters";
    const Json* const value = find_value(*inner, shape);
    if (value != nullptr && !value->is_object()) {
      return invalid(fmt::format("{}.{}", own, shape),
                     fmt::format("`{}.{}` must be {}.", own, shape,
                                 kind == "custom" ? "an object" : "a JSON Schema object"));
    }
  }
  return std::nullopt;
}

}  // namespace heddle::server

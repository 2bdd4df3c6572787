// SPDX-License-Identifier: Apache-2.0
#include "server/calls_as_text.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Adds a text behind the one that a message has, which may be in parts.
void append_text(Json& message, std::string_view separator, const std::string& text) {
  Json& content = message["content"];
  if (content.is_array()) {
    content.push_back({{"type", "text"}, {"text", std::string(separator) + text}});
    return;
  }
  std::string whole = content.is_string() ? content.get<std::string>() : std::string();
  if (!whole.empty()) whole += separator;
  content = whole + text;
}

std::string text_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return content.is_null() ? std::string() : dump_json(content);
  std::string text;
  for (const Json& part : content) {
    if (part.is_object() && part.contains("text") && part["text"].is_string()) {
      text += part["text"].get<std::string>();
    }
  }
  return text;
}

std::string text_of_call(const Json& function) {
  Json call = Json::object();
  call["name"] = function.value("name", Json(""));
  call["arguments"] = function.value("arguments", Json(Json::object()));
  return dump_json(call);
}

}  // namespace

bool template_drops_calls(const TextCodec& codec) {
  const std::string source = codec.chat_template_source();
  return !source.empty() && source.find("tool_calls") == std::string::npos;
}

void list_tools(const Json& tools, const ToolChoice& choice, Json& messages) {
  std::string text = "These tools can be called:\n";
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    Json shown = {{"name", function["name"]}};
    for (const char* const field : {"description", "parameters"}) {
      if (const auto found = function.find(field); found != function.end()) shown[field] = *found;
    }
    text += dump_json(shown) + "\n";
  }
  text += choice.kind == ToolChoice::Kind::kNamed
              ? fmt::format("Answer with a call of {} as JSON", dump_json(Json(choice.name)))
              : std::string("Answer with a call of one of them as JSON");
  text += ": {\"name\": \"NAME\", \"arguments\": {...}}";
  if (!messages.empty() && messages[0].value("role", Json()) == "system") {
    append_text(messages[0], "\n\n", text);
    return;
  }
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", std::move(text)}});
}

void write_calls(Json& messages) {
  std::map<std::string, std::string> names;  // of the tools that were called, by the calls' ids
  Json written = Json::array();
  bool follows_result = false;
  for (Json& message : messages) {
    const Json role = message.value("role", Json());
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
      for (const Json& call : *calls) {
        const Json function = call.value("function", Json(Json::object()));
        const Json id = call.value("id", Json());
        const Json name = function.value("name", Json());
        if (id.is_string() && name.is_string()) {
          names[id.get<std::string>()] = name.get<std::string>();
        }
        append_text(message, "\n", text_of_call(function));
      }
      message.erase("tool_calls");
    }
    if (role != "tool") {
      // The user's next words stand in the same turn: roles take turns.
      if (follows_result && role == "user") {
        append_text(written.back(), "\n\n", text_of(message["content"]));
      } else {
        written.push_back(std::move(message));
      }
      follows_result = false;
      continue;
    }
    const Json id = message.value("tool_call_id", Json());
    const auto known = id.is_string() ? names.find(id.get<std::string>()) : names.end();
    const Json given = message.value("name", Json());
    const std::string name = known != names.end() ? known->second
                             : given.is_string()  ? given.get<std::string>()
                                                  : std::string();
    const std::string result = fmt::format(
        "The result of {}:\n{}", name.empty() ? "the call" : name, text_of(message["content"]));
    if (follows_result) {
      append_text(written.back(), "\n\n", result);
    } else {
      written.push_back({{"role", "user"}, {"content", result}});
    }
    follows_result = true;
  }
  messages = std::move(written);
}

}  // namespace heddle::server

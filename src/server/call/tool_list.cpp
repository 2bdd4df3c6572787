// SPDX-License-Identifier: Apache-2.0
#include "server/call/tool_list.h"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Appends a text to the text of a message, which may consist of parts.
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

}  // namespace

void list_tools(const Json& tools, const ToolChoice& choice, bool as_json, Json& messages) {
  std::string text = "These tools can be called:";
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    Json shown = {{"name", function["name"]}};
    for (const char* const field : {"description", "parameters"}) {
      if (const auto found = function.find(field); found != function.end()) shown[field] = *found;
    }
    text += "\n" + dump_json(shown);
  }
  if (choice.forces_call()) {
    const bool is_named = choice.kind == ToolChoice::Kind::kNamed;
    text += fmt::format("\nAnswer with a call of {}{}",
                        is_named ? dump_json(Json(choice.name)) : "one of them",
                        as_json ? " as JSON: {\"name\": \"NAME\", \"arguments\": {...}}" : ".");
  }
  if (!messages.empty() && messages[0].value("role", Json()) == "system") {
    append_text(messages[0], "\n\n", text);
    return;
  }
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", std::move(text)}});
}

}  // namespace heddle::server

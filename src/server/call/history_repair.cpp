// SPDX-License-Identifier: Apache-2.0
#include "server/call/history_repair.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"
#include "server/call/document_part.h"
#include "server/http/http_message.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUnknownTool = "unknown";

bool is_number(const Json& value) {
  return value.is_number() || wide_number_spelling(value).has_value();
}

std::string string_member(const Json& object, std::string_view name) {
  const Json* const value = object.is_object() ? find_value(object, name) : nullptr;
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

// Whether parts of this type contain exactly one text.
bool is_text_part(std::string_view type) {
  constexpr std::array<std::string_view, 8> kTypes = {
      "text",     "input_text", "output_text",  "refusal",
      "thinking", "reasoning",  "summary_text", "reasoning_text"};
  return std::ranges::find(kTypes, type) != kTypes.end();
}

// Whether an object is a part of a message, and not some JSON that a tool returned.
bool is_part(const Json& object) {
  const std::string type = string_member(object, "type");
  return is_text_part(type) || is_media_part(type) || type == "file" || type == "input_file" ||
         type == "document" || type == "search_result" ||
         (type.empty() && !string_member(object, "text").empty());
}

// The text of a value where a text is expected; for parts, including Mistral's thinking, their
// text.
std::string text_of(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::string text;
    for (const Json& part : value) text += text_of(part);
    return text;
  }
  for (const char* const field : {"text", "content", "summary"}) {
    if (value.is_object() && value.contains(field) && value[field].is_string()) {
      return value[field].get<std::string>();
    }
  }
  return dump_json(value);
}

// The type of a part or block without one, derived from its fields; null if nothing implies one.
const char* type_by_fields(const Json& part) {
  if (part.contains("tool_use_id")) return "tool_result";
  if (part.contains("name") && part.contains("input")) return "tool_use";
  if (part.contains("text")) return "text";
  return part.contains("thinking") ? "thinking" : "";
}

// The type of an item of /v1/responses; if it has none, derived from its other fields; else "".
std::string item_type_of(const Json& item) {
  if (std::string type = string_member(item, "type"); !type.empty()) return type;
  if (item.contains("role") || item.contains("content")) return "message";
  if (item.contains("output")) return "function_call_output";
  if (item.contains("call_id") || item.contains("arguments")) return "function_call";
  return item.contains("summary") ? "reasoning" : "";
}

// Whether an item without a type has only an id.
bool is_bare_reference(const Json& item) {
  if (!item.contains("id")) return false;
  for (const auto& [key, value] : item.items()) {
    if (key != "id" && !value.is_null()) return false;
  }
  return true;
}

// Whether a client wrote the message. A message without a role counts as a client's only if it is
// the last one.
bool is_asking(const Json& message, bool is_last) {
  const std::string role = message.is_object() ? role_in_history(message) : std::string();
  if (role.empty()) return is_last;
  return role != "assistant" && role != "tool" && role != "function";
}

bool asks_for_nothing(const Json& value) {
  return value.is_null() || value == false || value == "" || value == 0;
}

void add_text(Json& message, std::string text) {
  Json& content = message["content"];
  if (content.is_array()) {
    content.push_back({{"type", "text"}, {"text", std::move(text)}});
    return;
  }
  auto whole = content.get<std::string>();
  if (!whole.empty()) whole += '\n';
  content = whole + text;
}

}  // namespace

std::string role_in_history(const Json& message) {
  if (std::string role = string_member(message, "role"); !role.empty()) return lower_case(role);
  if (!message.is_object()) return {};
  if (message.contains("tool_call_id")) return "tool";
  constexpr std::array<const char*, 6> kOfAnswers = {
      "tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "refusal"};
  const Json* const content = find_value(message, "content");
  const bool is_answer =
      std::ranges::any_of(kOfAnswers, [&](const char* field) { return message.contains(field); }) ||
      (content != nullptr && content->is_array() &&
       std::ranges::any_of(*content, [](const Json& part) {
         const std::string type = string_member(part, "type");
         return type == "output_text" || type == "refusal" || type == "tool_use" ||
                type == "thinking" || type == "redacted_thinking";
       }));
  return is_answer ? "assistant" : "";
}

size_t num_past_messages(const Json& messages) {
  size_t num_past = messages.size();
  while (num_past > 0 && is_asking(messages[num_past - 1], num_past == messages.size())) --num_past;
  return num_past;
}

size_t num_past_items(const Json& items, size_t begin) {
  size_t num_past = items.size();
  while (num_past > begin) {
    const Json& item = items[num_past - 1];
    if (item.is_object() && item_type_of(item) != "message") break;
    if (!is_asking(item, num_past == items.size())) break;
    --num_past;
  }
  return num_past;
}

void HistoryRepair::note(std::string_view field, const Json& value) const {
  if (value.is_null()) return;
  context_.note_unused(
      "type of a field",
      fmt::format("{}: {}", field, is_number(value) ? "number" : value.type_name()));
}

bool HistoryRepair::make_object(Json& item) const {
  if (item.is_null()) return false;
  if (item.is_object()) return true;
  note("message", item);
  std::string text = text_of(item);
  item = {{"role", "user"}, {"content", std::move(text)}};
  return true;
}

void HistoryRepair::role(Json& message, bool follows_question) const {
  Json& role = message["role"];
  if (role.is_string() && role != "") return;
  note("role", role);
  role = nullptr;
  const std::string told = role_in_history(message);
  message["role"] = !told.empty() ? told : follows_question ? "assistant" : "user";
}

void HistoryRepair::text(Json& object, const std::string& field) const {
  Json& value = object[field];
  if (value.is_string()) return;
  if (!value.is_array()) note(field, value);
  value = text_of(value);
}

void HistoryRepair::name(Json& object, const std::string& field) const {
  const auto value = object.find(field);
  if (value == object.end() || value->is_string()) return;
  note(field, *value);
  if (is_number(*value)) {
    *value = dump_json(*value);
  } else {
    object.erase(field);
  }
}

void HistoryRepair::tool_name(Json& function) const {
  name(function, "name");
  Json& given = function["name"];
  if (given.is_null() || given == "") given = kUnknownTool;
}

void HistoryRepair::content(Json& object, const std::string& field) const {
  Json& content = object[field];
  if (content.is_string()) return;
  if (content.is_object() && is_part(content)) {
    Json list = Json::array();
    list.push_back(std::move(content));
    content = std::move(list);
  }
  if (!content.is_array()) {
    note(field, content);
    content = content.is_null() ? std::string() : dump_json(content);
    return;
  }
  Json parts = Json::array();
  for (Json& entry : content) {
    if (entry.is_null()) continue;
    if (entry.is_object()) {
      part(entry);
    } else if (!entry.is_string()) {
      note(field + "[]", entry);
      entry = dump_json(entry);
    }
    parts.push_back(std::move(entry));
  }
  content = std::move(parts);
}

void HistoryRepair::part(Json& part) const {
  if (const auto type = part.find("type"); type == part.end() || !type->is_string()) {
    if (type != part.end()) note("type", *type);
    const std::string told = type_by_fields(part);
    if (told.empty()) {
      part = dump_json(part);
      return;
    }
    part["type"] = told;
  }
  const auto type = part["type"].get<std::string>();
  if (type == "compaction" && find_value(part, "content") != nullptr) text(part, "content");
  if (!is_text_part(type)) return;
  for (const std::string& field : {type, std::string("content")}) {
    const Json* const value =
        find_value(part, "text") == nullptr ? find_value(part, field) : nullptr;
    if (value != nullptr) part.update({{"text", Json(*value)}});
  }
  text(part, "text");
  if (type == "refusal" || type == "thinking") part.update({{type, Json(part["text"])}});
}

void HistoryRepair::chat_message(Json& message, bool follows_question) const {
  role(message, follows_question);
  content(message, "content");
  for (const char* const field : {"name", "tool_call_id"}) name(message, field);
  if (role_in_history(message) != "assistant") return;
  if (find_value(message, "refusal") != nullptr) text(message, "refusal");
  reasoning(message);
  calls(message);
}

// Moves reasoning to `reasoning_content`. Servers and clients use several fields for the same text.
void HistoryRepair::reasoning(Json& message) const {
  std::string whole;
  for (const char* const field : {"reasoning_content", "reasoning", "thinking"}) {
    if (find_value(message, field) != nullptr) text(message, field);
    if (whole.empty()) whole = string_member(message, field);
    message.erase(field);
  }
  if (const Json* const details = find_value(message, "reasoning_details"); details != nullptr) {
    std::string text;
    for (const Json& part : details->is_array() ? *details : Json::array({*details})) {
      const std::string type = string_member(part, "type");
      if (type == "reasoning.encrypted") continue;
      if (!type.empty() && type != "reasoning.text" && type != "reasoning.summary") {
        context_.note_unused("type of a part", type);
      }
      text += text_of(part);
    }
    if (whole.empty()) whole = std::move(text);
  }
  message.erase("reasoning_details");
  if (!whole.empty()) message["reasoning_content"] = std::move(whole);
}

void HistoryRepair::calls(Json& message) const {
  if (const auto old_call = message.find("function_call"); old_call != message.end()) {
    if (old_call->is_object()) {
      tool_name(*old_call);
    } else {
      note("function_call", *old_call);
      message.erase("function_call");
    }
  }
  const auto found = message.find("tool_calls");
  if (found == message.end()) return;
  Json sent = std::move(*found);
  message.erase("tool_calls");
  if (!sent.is_array()) {
    note("tool_calls", sent);
    Json list = Json::array();
    if (!asks_for_nothing(sent)) list.push_back(std::move(sent));
    sent = std::move(list);
  }
  Json calls = Json::array();
  for (Json& entry : sent) {
    if (entry.is_null()) continue;
    if (entry.is_object()) {
      call(entry);
      calls.push_back(std::move(entry));
    } else {
      note("tool_calls[]", entry);
      add_text(message, shown_as_text("tool_call", std::move(entry)));
    }
  }
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
}

// Repairs a call. Some clients send the name, or name and arguments, instead of the function
// object.
void HistoryRepair::call(Json& call) const {
  name(call, "id");
  name(call, "type");
  const Json* const function = find_value(call, "function");
  Json* const custom = call.contains("custom") ? &call["custom"] : nullptr;
  if ((function == nullptr || !function->is_object()) && custom != nullptr && custom->is_object()) {
    tool_name(*custom);
    text(*custom, "input");
    call.erase("function");
    return;
  }
  if (function == nullptr || !function->is_object()) {
    Json made = Json::object();
    if (function != nullptr) note("function", *function);
    if (function != nullptr && function->is_string()) made["name"] = *function;
    for (const char* const field : {"name", "arguments"}) {
      if (!made.contains(field) && call.contains(field)) made[field] = call[field];
    }
    call["function"] = std::move(made);
  }
  tool_name(call["function"]);
}

void HistoryRepair::response_item(Json& item, bool follows_question) const {
  if (const auto type = item.find("type"); type == item.end() || !type->is_string()) {
    if (type != item.end()) note("type", *type);
    std::string told = item_type_of(item);
    if (told.empty() && type != item.end() && !type->is_null()) told = dump_json(*type);
    if (told.empty() && is_bare_reference(item)) return;
    item["type"] = told.empty() ? "item" : told;
  }
  const auto type = item["type"].get<std::string>();
  if (type == "message") {
    role(item, follows_question);
    content(item, "content");
    return;
  }
  for (const char* const field : {"id", "call_id", "name", "namespace"}) name(item, field);
  if (type == "function_call") {
    tool_name(item);
    Json& arguments = item["arguments"];
    if (!arguments.is_string()) arguments = arguments.is_null() ? "{}" : dump_json(arguments);
  }
  for (const char* const field : {"content", "summary"}) {
    if (type == "reasoning" && find_value(item, field) != nullptr) content(item, field);
  }
  if (!type.ends_with("_output")) return;
  for (const char* const field : {"output", "result", "status"}) {
    const Json* const output = find_value(item, field);
    if (output != nullptr && !output->is_object()) content(item, field);
  }
}

void HistoryRepair::anthropic_message(Json& message, bool follows_question) const {
  role(message, follows_question);
  content(message, "content");
  if (!message["content"].is_array()) return;
  for (Json& block : message["content"]) {
    const std::string type = string_member(block, "type");
    if (type == "tool_result") tool_result(block);
    if (type != "tool_use") continue;
    name(block, "id");
    tool_name(block);
  }
}

void HistoryRepair::tool_result(Json& block) const {
  name(block, "tool_use_id");
  content(block, "content");
}

}  // namespace heddle::server

// SPDX-License-Identifier: Apache-2.0
#include "server/anthropic_messages.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/anthropic_answer.h"
#include "server/call_fields.h"
#include "server/chat_completions.h"
#include "server/chat_prompt.h"
#include "server/field_reader.h"
#include "server/json_text.h"
#include "server/tokenize.h"
#include "server/tool_fields.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// The text of a string or of blocks of text.
std::optional<ApiError> read_text_blocks(const Json& content, const std::string& param,
                                         std::string& text) {
  if (content.is_string()) {
    text = content.get<std::string>();
    return std::nullopt;
  }
  if (!content.is_array()) return invalid_type(param, "a string or a list of blocks");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", param, i);
    if (!content[i].is_object()) return invalid_type(name, "an object");
    FieldReader block(content[i], name + ".");
    const std::string type = block.string("type").value_or("");
    const auto more = block.string("text");
    if (block.error()) return block.error();
    if (type != "text") {
      return invalid_value(name + ".type",
                           fmt::format("`{}` is a block of type \"{}\"; only text is taken here.",
                                       name, printable(type, 40)));
    }
    if (!more) return missing_parameter(name + ".text");
    if (!text.empty()) text += '\n';
    text += *more;
  }
  return std::nullopt;
}

// A call, or its result, of a tool that Anthropic's servers or MCP servers ran in an earlier
// answer, as text: a model here knows no such calls. Encrypted results mean nothing to it.
std::string describe_foreign_block(const std::string& type, Json block) {
  for (const char* const name : {"type", "id", "tool_use_id", "cache_control", "caller"}) {
    block.erase(name);
  }
  if (const auto content = block.find("content"); content != block.end() && content->is_array()) {
    for (Json& part : *content) {
      if (part.is_object()) part.erase("encrypted_content");
    }
  }
  return fmt::format("[{}: {}]", type, dump_json(block));
}

// The text of what a tool returned. Of images and files, which no model here can see, the type.
std::string result_text(const Json& content) {
  std::string text;
  for (const Json& block : content) {
    const auto type = block["type"].get<std::string>();
    if (!text.empty()) text += '\n';
    if (type == "text") {
      text += block["text"].get<std::string>();
    } else if (type == "image" || type == "document") {
      text += fmt::format("[{}]", type);
    } else {
      text += describe_foreign_block(printable(type, 40), block);
    }
  }
  return text;
}

bool are_result_blocks(const Json& content) {
  return content.is_array() && std::ranges::all_of(content, [](const Json& block) {
           if (!block.is_object() || !block.contains("type") || !block["type"].is_string()) {
             return false;
           }
           return block["type"] != "text" || (block.contains("text") && block["text"].is_string());
         });
}

// One message of the client, which can be several in a chat.
struct MessageParts {
  std::string text;
  std::string reasoning;
  Json calls = Json::array();
  Json results = Json::array();  // messages of the role tool
};

std::optional<ApiError> read_tool_use(const Json& value, const std::string& param, Json& calls) {
  FieldReader block(value, param + ".");
  const auto id = block.string("id");
  const auto name = block.string("name");
  const Json* input = block.object("input");
  if (block.error()) return block.error();
  if (!id) return missing_parameter(param + ".id");
  if (!name) return missing_parameter(param + ".name");
  calls.push_back(
      {{"id", *id},
       {"type", "function"},
       {"function", {{"name", *name}, {"arguments", input == nullptr ? Json::object() : *input}}}});
  return std::nullopt;
}

std::optional<ApiError> read_tool_result(const Json& value, const std::string& param,
                                         Json& results) {
  FieldReader block(value, param + ".");
  const auto id = block.string("tool_use_id");
  const Json* content = block.find("content");
  block.boolean("is_error");
  if (block.error()) return block.error();
  if (!id) return missing_parameter(param + ".tool_use_id");
  std::string text;
  if (content != nullptr && are_result_blocks(*content)) {
    text = result_text(*content);
  } else if (content != nullptr) {
    if (auto error = read_text_blocks(*content, param + ".content", text)) return error;
  }
  results.push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(text)}});
  return std::nullopt;
}

std::optional<ApiError> read_anthropic_block(const Json& value, const std::string& param,
                                             bool is_assistant, MessageParts& parts) {
  if (!value.is_object()) return invalid_type(param, "an object");
  FieldReader block(value, param + ".");
  const auto type = block.string("type");
  if (block.error()) return block.error();
  if (!type) return missing_parameter(param + ".type");
  if (*type == "text" || (*type == "thinking" && is_assistant)) {
    const auto text = block.string(*type);
    if (block.error()) return block.error();
    if (!text) return missing_parameter(fmt::format("{}.{}", param, *type));
    std::string& target = *type == "text" ? parts.text : parts.reasoning;
    if (!target.empty()) target += '\n';
    target += *text;
    return std::nullopt;
  }
  if (*type == "redacted_thinking" && is_assistant) return std::nullopt;
  if (*type == "tool_use" && is_assistant) return read_tool_use(value, param, parts.calls);
  if (*type == "tool_result" && !is_assistant) {
    return read_tool_result(value, param, parts.results);
  }
  // Of MCP servers, or of Anthropic's: "server_tool_use", "web_search_tool_result".
  if (is_assistant && (type->ends_with("_tool_use") || type->ends_with("_tool_result"))) {
    if (!parts.text.empty()) parts.text += '\n';
    parts.text += describe_foreign_block(*type, value);
    return std::nullopt;
  }
  if (is_assistant && (*type == "container_upload" || *type == "compaction")) return std::nullopt;
  if (*type == "image" || *type == "document") {
    return ApiError{.code = "unsupported_parameter",
                    .message = fmt::format("`{}` is a block of type {}; this model takes text "
                                           "only.",
                                           param, *type),
                    .param = param};
  }
  return invalid_value(
      param + ".type",
      fmt::format("`{}.type` is \"{}\"; a message of the {} has no such block.", param,
                  printable(*type, 40), is_assistant ? "assistant" : "user"));
}

std::optional<ApiError> read_anthropic_message(const Json& value, const std::string& param,
                                               Json& messages) {
  if (!value.is_object()) return invalid_type(param, "an object");
  FieldReader message(value, param + ".");
  const auto role = message.string("role");
  const Json* content = message.find("content");
  if (message.error()) return message.error();
  if (!role) return missing_parameter(param + ".role");
  if (*role != "user" && *role != "assistant" && *role != "system" && *role != "developer") {
    return invalid_value(param + ".role",
                         fmt::format("`{}.role` is \"{}\"; it must be user or assistant.", param,
                                     printable(*role, 40)));
  }
  if (content == nullptr) return missing_parameter(param + ".content");
  MessageParts parts;
  if (content->is_string()) {
    parts.text = content->get<std::string>();
  } else if (content->is_array()) {
    for (size_t i = 0; i < content->size(); ++i) {
      if (auto error = read_anthropic_block((*content)[i], fmt::format("{}.content[{}]", param, i),
                                            *role == "assistant", parts)) {
        return error;
      }
    }
  } else {
    return invalid_type(param + ".content", "a string or a list of blocks");
  }
  const bool only_results = !parts.results.empty() && parts.text.empty();
  for (Json& result : parts.results) messages.push_back(std::move(result));
  if (only_results) return std::nullopt;
  Json chat = {{"role", *role}, {"content", std::move(parts.text)}};
  if (!parts.reasoning.empty()) chat["reasoning_content"] = std::move(parts.reasoning);
  if (!parts.calls.empty()) chat["tool_calls"] = std::move(parts.calls);
  messages.push_back(std::move(chat));
  return std::nullopt;
}

std::optional<ApiError> read_anthropic_messages(FieldReader& fields, Json& chat) {
  Json messages = Json::array();
  if (const Json* system = fields.find("system")) {
    std::string text;
    if (auto error = read_text_blocks(*system, "system", text)) return error;
    if (!text.empty()) messages.push_back({{"role", "system"}, {"content", std::move(text)}});
  }
  const Json* sent = fields.array("messages");
  if (fields.error()) return fields.error();
  if (sent == nullptr) return missing_parameter("messages");
  if (sent->empty()) return invalid_value("messages", "`messages` is empty.");
  for (size_t i = 0; i < sent->size(); ++i) {
    if (auto error = read_anthropic_message((*sent)[i], fmt::format("messages[{}]", i), messages)) {
      return error;
    }
  }
  // A reply that the client has begun is gone on with.
  if (messages.back()["role"] == "assistant" && !messages.back().contains("tool_calls") &&
      messages.size() > 1) {
    chat["continue_final_message"] = true;
  }
  chat["messages"] = std::move(messages);
  return std::nullopt;
}

std::optional<ApiError> read_anthropic_tool(FieldReader& tool, const std::string& param,
                                            Json& function) {
  const std::string type = tool.string("type").value_or("custom");
  const auto name = tool.string("name");
  const auto description = tool.string("description");
  const Json* schema = tool.object("input_schema");
  const auto is_strict = tool.boolean("strict");
  if (tool.error()) return tool.error();
  if (type != "custom") return std::nullopt;  // run by Anthropic's servers
  if (!name) return missing_parameter(param + ".name");
  if (schema == nullptr) return missing_parameter(param + ".input_schema");
  function["name"] = *name;
  if (description) function["description"] = *description;
  function["parameters"] = *schema;
  if (is_strict) function["strict"] = *is_strict;
  return std::nullopt;
}

std::optional<ApiError> read_anthropic_tool_choice(FieldReader& fields, Json& chat) {
  const Json* value = fields.object("tool_choice");
  if (fields.error()) return fields.error();
  if (value == nullptr) return std::nullopt;
  FieldReader choice(*value, "tool_choice.");
  const std::string type = choice.string("type").value_or("");
  const auto name = choice.string("name");
  if (choice.boolean("disable_parallel_tool_use").value_or(false)) {
    chat["parallel_tool_calls"] = false;
  }
  if (choice.error()) return choice.error();
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool" && name) {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
  } else if (type == "tool") {
    return missing_parameter("tool_choice.name");
  } else {
    return invalid_value("tool_choice.type", "`tool_choice.type` must be auto, any, tool or none.");
  }
  return std::nullopt;
}

std::optional<ApiError> read_anthropic_thinking(FieldReader& fields, bool takes_budget, Json& chat,
                                                FieldNames& names) {
  const Json* value = fields.object("thinking");
  if (fields.error()) return fields.error();
  if (value == nullptr) return std::nullopt;
  FieldReader thinking(*value, "thinking.");
  const std::string type = thinking.string("type").value_or("");
  const auto budget = thinking.integer("budget_tokens", 1);
  if (thinking.error()) return thinking.error();
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return invalid_value("thinking.type", "`thinking.type` must be enabled, disabled or adaptive.");
  }
  if (type == "adaptive") return std::nullopt;
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t least = type == "enabled" && takes_budget ? budget.value_or(kNone) : kNone;
  if (const Json* own = fields.object("reasoning")) {
    FieldReader inner(*own, "reasoning.");
    least = std::min(least, inner.integer("max_tokens", 0).value_or(kNone));
    if (inner.error()) return inner.error();
  }
  if (fields.error()) return fields.error();
  if (budget && least == *budget) names.add("reasoning.max_tokens", "thinking.budget_tokens");
  chat["reasoning"] = {{"enabled", type == "enabled"}};
  if (least < kNone) chat["reasoning"]["max_tokens"] = least;
  return std::nullopt;
}

// `output_config.format`, and `output_format` as it was called at first.
std::optional<ApiError> read_output_format(FieldReader& fields, Json& chat, FieldNames& names) {
  std::string param = "output_format";
  const Json* format = fields.object("output_format");
  if (const Json* const config = fields.object("output_config")) {
    FieldReader inner(*config, "output_config.");
    if (const Json* const newer = inner.object("format")) {
      format = newer;
      param = "output_config.format";
    }
    if (inner.error()) return inner.error();
  }
  if (fields.error() || format == nullptr) return fields.error();
  FieldReader shape(*format, param + ".");
  const std::string type = shape.string("type").value_or("");
  const Json* const schema = shape.object("schema");
  if (shape.error()) return shape.error();
  if (type != "json_schema") {
    return invalid_value(param + ".type", fmt::format("`{}.type` must be json_schema.", param));
  }
  if (schema == nullptr) return missing_parameter(param + ".schema");
  names.add("response_format", param);
  names.add("response_format.json_schema", param);
  chat["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "output"}, {"schema", *schema}}}};
  return std::nullopt;
}

// The request as /v1/chat/completions would take it. Fields of ours have one name in both; `names`
// gets those that differ.
std::optional<ApiError> chat_of_messages(const CallContext& context, const Json& body,
                                         bool needs_max_tokens, Json& chat, FieldNames& names) {
  chat = body;
  for (const char* name :
       {"system", "messages", "tools", "tool_choice", "thinking", "stop_sequences", "metadata",
        "service_tier", "container", "output_config", "output_format"}) {
    chat.erase(name);
  }
  FieldReader fields(body);
  const auto stop = fields.strings("stop_sequences");
  if (stop) {
    chat["stop"] = *stop;
    names.add("stop", "stop_sequences");
  }
  if (const Json* metadata = fields.object("metadata")) {
    FieldReader inner(*metadata, "metadata.");
    const auto user = inner.string("user_id");
    if (inner.error()) return inner.error();
    if (user) {
      chat["user"] = *user;
      names.add("user", "metadata.user_id");
    }
  }
  refuse_several_answers(fields);
  if (fields.error()) return fields.error();
  if (needs_max_tokens && fields.find("max_tokens") == nullptr) {
    return missing_parameter("max_tokens");
  }
  fields.integer("max_tokens", 1);
  if (fields.error()) return fields.error();
  if (auto error = read_anthropic_messages(fields, chat)) return error;
  if (auto error = translate_tools(fields, read_anthropic_tool, chat, names)) return error;
  if (auto error = read_anthropic_tool_choice(fields, chat)) return error;
  if (auto error = read_output_format(fields, chat, names)) return error;
  // Clients send a budget to every model that thinks: the effort alone counts where none can.
  const bool takes_budget = context.formats.reasoning != parsers::ReasoningFormat::kHarmony;
  return read_anthropic_thinking(fields, takes_budget, chat, names);
}

}  // namespace

PrepareResult prepare_messages(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  Json chat;
  FieldNames names;
  if (auto error = chat_of_messages(context, object, /*needs_max_tokens=*/true, chat, names)) {
    return *error;
  }
  object = nullptr;
  PrepareResult result = prepare_chat_call(context, chat, make_messages_adapter);
  if (auto* const error = std::get_if<ApiError>(&result)) names.restore(*error);
  return result;
}

AnswerResult answer_count_tokens(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  Json chat;
  FieldNames names;
  if (auto error = chat_of_messages(context, object, /*needs_max_tokens=*/false, chat, names)) {
    return *error;
  }
  FieldReader fields(chat);
  static_cast<void>(read_model_name(fields, context));
  const ToolFields tools = read_tool_fields(fields);
  ChatPrompt prompt;
  if (auto error = read_chat_prompt(fields, context, tools, kMaxTokenizedTokens, prompt)) {
    names.restore(*error);
    return *error;
  }
  JsonPieces answer;
  answer.begin_object().key("input_tokens").value(prompt.ids.size()).end_object();
  return JsonAnswer{.body = std::move(answer), .shown = nullptr};
}

}  // namespace heddle::server

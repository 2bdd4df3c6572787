// SPDX-License-Identifier: Apache-2.0
#include "server/api/anthropic/anthropic_messages.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/api/anthropic/anthropic_answer.h"
#include "server/api/native/tokenize.h"
#include "server/api/openai/chat_completions.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/chat_prompt.h"
#include "server/call/document_part.h"
#include "server/call/field_reader.h"
#include "server/call/history_repair.h"
#include "server/call/tool_fields.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

ApiError media_error(const std::string& param, std::string_view type) {
  return {.code = "unsupported_parameter",
          .message =
              fmt::format("`{}` is a block of type {}; this model takes text only.", param, type),
          .param = param};
}

// First line of Claude Code's first system block. It differs by conversation or request, means
// nothing to a model, and would prevent prefix caching of everything after it.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

bool is_billing_header(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text.substr(begin).starts_with(kBillingHeader);
}

// The text of a system message without the billing header, which is its first line.
std::string without_billing_header(std::string text) {
  if (!is_billing_header(text)) return text;
  const size_t end = text.find('\n', text.find(kBillingHeader));
  text.erase(0, end == std::string::npos ? text.size() : end + 1);
  return text;
}

// Reads a system text: a string, or blocks of text.
std::optional<ApiError> read_system_blocks(const CallContext& context, const Json& content,
                                           const std::string& param, bool is_asked,
                                           std::string& text) {
  if (content.is_string()) {
    text = without_billing_header(content.get<std::string>());
    return std::nullopt;
  }
  if (!content.is_array()) return invalid_type(param, "a string or a list of blocks");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", param, i);
    const Json plain = {{"type", "text"}, {"text", content[i]}};
    const Json& sent = content[i].is_string() ? plain : content[i];
    if (!sent.is_object()) return invalid_type(name, "an object");
    FieldReader block(sent, name + ".");
    const std::string type = block.string("type").value_or("");
    if (block.error()) return block.error();
    std::string more;
    if (type == "text") {
      auto own = block.string("text");
      if (block.error()) return block.error();
      if (!own) return missing_parameter(name + ".text");
      more = without_billing_header(*std::move(own));
      if (more.empty()) continue;
    } else if (auto document = read_document_part(context, sent, type, name)) {
      auto* const error = std::get_if<ApiError>(&*document);
      if (error != nullptr && is_asked) return std::move(*error);
      more = error != nullptr ? fmt::format("[{}]", type) : std::get<std::string>(*document);
    } else if (is_media_part(type) && is_asked) {
      return media_error(name, type);
    } else if (is_media_part(type)) {
      more = fmt::format("[{}]", type);
    } else {
      context.note_unused("type of a block", type);
      more = shown_as_text(type, sent);
    }
    if (!text.empty()) text += '\n';
    text += more;
  }
  return std::nullopt;
}

// A call, or the result of a call, that Anthropic's servers or MCP servers ran for an earlier
// answer, as text, because the served model does not know such calls. Encrypted results are
// omitted.
std::string describe_foreign_block(const std::string& type, Json block) {
  if (const auto content = block.find("content"); content != block.end() && content->is_array()) {
    for (Json& part : *content) {
      if (part.is_object()) part.erase("encrypted_content");
    }
  }
  return shown_as_text(type, std::move(block));
}

// The text of a tool's result. For images and files, which the model cannot process, the type is
// written.
std::string result_text(const CallContext& context, const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return dump_json(content);
  std::string text;
  for (const Json& block : content) {
    const Json type_field = block.is_object() ? block.value("type", Json()) : Json();
    const std::string type = type_field.is_string() ? type_field.get<std::string>() : "";
    if (!text.empty()) text += '\n';
    if (type == "text" && block.contains("text") && block["text"].is_string()) {
      text += block["text"].get<std::string>();
    } else if (const auto document = read_document_part(context, block, type, "content")) {
      const auto* const found = std::get_if<std::string>(&*document);
      text += found != nullptr ? *found : fmt::format("[{}]", type);
    } else if (is_media_part(type)) {
      text += fmt::format("[{}]", type);
    } else if (type == "tool_reference") {
      text += describe_foreign_block(type, block);
    } else {
      text += type.empty() ? dump_json(block) : describe_foreign_block(printable(type, 40), block);
    }
  }
  return text;
}

// One message of the client, which can become several messages of a chat.
struct MessageParts {
  Json texts = Json::array();  // parts of the content that are text
  std::string reasoning;
  Json calls = Json::array();
  Json results = Json::array();  // messages of the role tool

  void add_text(std::string text) {
    texts.push_back({{"type", "text"}, {"text", std::move(text)}});
  }
};

// Converts a call. Its input is unchanged, even if it is no object, because a model wrote it.
std::optional<ApiError> read_tool_use(const Json& value, const std::string& param, Json& calls) {
  FieldReader block(value, param + ".");
  const auto id = block.string("id");
  const auto name = block.string("name");
  const Json* input = block.find("input");
  if (block.error()) return block.error();
  if (!name) return missing_parameter(param + ".name");
  Json call = {
      {"type", "function"},
      {"function", {{"name", *name}, {"arguments", input == nullptr ? Json::object() : *input}}}};
  if (id) call["id"] = *id;
  calls.push_back(std::move(call));
  return std::nullopt;
}

// Converts a tool's result. A tool wrote it, so nothing in it is an error.
Json read_tool_result(const CallContext& context, Json block) {
  HistoryRepair(context).tool_result(block);
  Json result = {{"role", "tool"}, {"content", result_text(context, block["content"])}};
  if (const auto id = block.find("tool_use_id"); id != block.end()) result["tool_call_id"] = *id;
  return result;
}

// Whether blocks of this type are dropped: they have no text, only state of Anthropic's servers.
bool is_passed_over(std::string_view type) {
  return type == "redacted_thinking" || type == "container_upload" || type == "compaction" ||
         type == "fallback";
}

// The author of a block, and whether an answer has followed it.
struct BlockWriter {
  bool is_assistant = false;
  // No answer follows, so content that the model cannot process is an error.
  bool is_asking = false;
};

std::optional<ApiError> read_anthropic_block(const CallContext& context, const Json& value,
                                             const std::string& param, const BlockWriter& writer,
                                             MessageParts& parts) {
  const bool is_assistant = writer.is_assistant;
  if (value.is_string()) {
    parts.add_text(value.get<std::string>());
    return std::nullopt;
  }
  if (!value.is_object()) return invalid_type(param, "an object");
  FieldReader block(value, param + ".");
  const auto type = block.string("type");
  if (block.error()) return block.error();
  if (!type) return missing_parameter(param + ".type");
  if (*type == "text" || (*type == "thinking" && is_assistant)) {
    const auto text = block.string(*type);
    if (block.error()) return block.error();
    if (!text) return missing_parameter(fmt::format("{}.{}", param, *type));
    if (*type == "text") {
      parts.add_text(*text);
      return std::nullopt;
    }
    if (!parts.reasoning.empty()) parts.reasoning += '\n';
    parts.reasoning += *text;
    return std::nullopt;
  }
  if (*type == "compaction" && block.find("content") != nullptr) {
    const auto summary = block.string("content");
    if (summary) parts.add_text(*summary);
    return block.error();
  }
  if (is_passed_over(*type)) return std::nullopt;
  if (*type == "tool_use" && is_assistant) return read_tool_use(value, param, parts.calls);
  if (*type == "tool_result" && !is_assistant) {
    parts.results.push_back(read_tool_result(context, value));
    return std::nullopt;
  }
  if (writer.is_asking && (*type == "tool_use" || *type == "tool_result" || *type == "thinking")) {
    return invalid_value(param + ".type",
                         fmt::format("`{}.type` is \"{}\"; a message of the {} has no such block.",
                                     param, *type, is_assistant ? "assistant" : "user"));
  }
  // Calls and results of the client's tools, of MCP servers and of Anthropic's tools
  // ("server_tool_use", "web_search_tool_result").
  if (*type == "tool_use" || *type == "tool_result" || type->ends_with("_tool_use") ||
      type->ends_with("_tool_result") || type->ends_with("_tool_result_error")) {
    parts.add_text(describe_foreign_block(*type, value));
    return std::nullopt;
  }
  if (auto document = read_document_part(context, value, *type, param)) {
    auto* const error = std::get_if<ApiError>(&*document);
    if (error != nullptr && writer.is_asking) return std::move(*error);
    parts.add_text(error != nullptr ? fmt::format("[{}]", *type)
                                    : std::get<std::string>(std::move(*document)));
    return std::nullopt;
  }
  if (is_media_part(*type) && writer.is_asking) return media_error(param, *type);
  if (!is_media_part(*type)) context.note_unused("type of a block", *type);
  parts.add_text(is_media_part(*type) ? fmt::format("[{}]", *type) : shown_as_text(*type, value));
  return std::nullopt;
}

std::optional<ApiError> read_anthropic_message(const CallContext& context, const Json& value,
                                               const std::string& param, bool is_asked,
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
  if (*role == "system" || *role == "developer") {
    std::string text;
    if (auto error = read_system_blocks(context, *content, param + ".content", is_asked, text)) {
      return error;
    }
    if (!text.empty()) messages.push_back({{"role", *role}, {"content", std::move(text)}});
    return std::nullopt;
  }
  MessageParts parts;
  if (content->is_string()) {
    parts.add_text(content->get<std::string>());
  } else if (content->is_array()) {
    for (size_t i = 0; i < content->size(); ++i) {
      if (auto error = read_anthropic_block(
              context, (*content)[i], fmt::format("{}.content[{}]", param, i),
              {.is_assistant = *role == "assistant", .is_asking = is_asked}, parts)) {
        return error;
      }
    }
  } else {
    return invalid_type(param + ".content", "a string or a list of blocks");
  }
  const bool only_results = !parts.results.empty() && parts.texts.empty();
  for (Json& result : parts.results) messages.push_back(std::move(result));
  if (only_results) return std::nullopt;
  Json chat = {{"role", *role}, {"content", ""}};
  if (parts.texts.size() == 1) {
    chat["content"] = std::move(parts.texts[0]["text"]);
  } else if (!parts.texts.empty()) {
    chat["content"] = std::move(parts.texts);
  }
  if (!parts.reasoning.empty()) chat["reasoning_content"] = std::move(parts.reasoning);
  if (!parts.calls.empty()) chat["tool_calls"] = std::move(parts.calls);
  messages.push_back(std::move(chat));
  return std::nullopt;
}

std::optional<ApiError> read_anthropic_messages(const CallContext& context, FieldReader& fields,
                                                Json& chat) {
  Json messages = Json::array();
  if (const Json* system = fields.find(Body::kMessagesPrompt["system"])) {
    std::string text;
    if (auto error = read_system_blocks(context, *system, "system", /*is_asked=*/true, text))
      return error;
    if (!text.empty()) messages.push_back({{"role", "system"}, {"content", std::move(text)}});
  }
  const Json* sent = fields.array(Body::kMessagesPrompt["messages"]);
  if (fields.error()) return fields.error();
  if (sent == nullptr) return missing_parameter("messages");
  if (sent->empty()) return invalid_value("messages", "`messages` is empty.");
  const size_t num_past = num_past_messages(*sent);
  const HistoryRepair repair(context);
  bool follows_question = false;
  for (size_t i = 0; i < sent->size(); ++i) {
    const bool is_asked = i >= num_past;
    Json repaired;
    if (!is_asked) {
      repaired = (*sent)[i];
      if (!repair.make_object(repaired)) continue;
      repair.anthropic_message(repaired, follows_question);
      follows_question = repaired["role"] == "user";
    }
    if (auto error = read_anthropic_message(context, is_asked ? (*sent)[i] : repaired,
                                            fmt::format("messages[{}]", i), is_asked, messages)) {
      return error;
    }
  }
  if (messages.empty()) return invalid_value("messages", "`messages` have no text.");
  // The answer continues a reply that the client has begun.
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
  if (type != "custom") return std::nullopt;  // other types are tools that Anthropic's servers run
  if (!name) return missing_parameter(param + ".name");
  if (schema == nullptr) return missing_parameter(param + ".input_schema");
  function["name"] = *name;
  if (description) function["description"] = *description;
  function["parameters"] = *schema;
  if (is_strict) function["strict"] = *is_strict;
  return std::nullopt;
}

std::optional<ApiError> read_anthropic_tool_choice(FieldReader& fields, Json& chat) {
  const Json* value = fields.object(Body::kMessagesPrompt["tool_choice"]);
  if (fields.error()) return fields.error();
  if (value == nullptr) return std::nullopt;
  FieldReader choice(*value, "tool_choice.");
  const std::string type = choice.string(Body::kToolChoice["type"]).value_or("");
  const auto name = choice.string(Body::kToolChoice["name"]);
  if (choice.flag(Body::kToolChoice["disable_parallel_tool_use"])) {
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

std::optional<ApiError> read_anthropic_thinking(FieldReader& fields, const CallContext& context,
                                                Json& chat, FieldNames& names) {
  const Json* value = fields.object(Body::kMessagesPrompt["thinking"]);
  if (fields.error()) return fields.error();
  if (value == nullptr) return std::nullopt;
  FieldReader thinking(*value, "thinking.");
  const std::string type = thinking.string(Body::kThinkingSwitch["type"]).value_or("");
  const auto budget = thinking.integer(Body::kThinkingSwitch["budget_tokens"]);
  if (thinking.error()) return thinking.error();
  context.note_unasked(thinking);
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return invalid_value("thinking.type", "`thinking.type` must be enabled, disabled or adaptive.");
  }
  if (type == "adaptive") return std::nullopt;
  // Clients send a budget to every model that can think. It is ignored in the Harmony format, where
  // only the effort applies.
  const bool takes_budget = context.formats.reasoning != parsers::ReasoningFormat::kHarmony;
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t least = type == "enabled" && takes_budget ? budget.value_or(kNone) : kNone;
  if (const Json* own = fields.object(Body::kThinking["reasoning"])) {
    FieldReader inner(*own, "reasoning.");
    least = std::min(least, inner.integer(Body::kReasoning["max_tokens"]).value_or(kNone));
    if (inner.error()) return inner.error();
  }
  if (fields.error()) return fields.error();
  if (budget && least == *budget) names.add("reasoning.max_tokens", "thinking.budget_tokens");
  chat["reasoning"] = {{"enabled", type == "enabled"}};
  if (least < kNone) chat["reasoning"]["max_tokens"] = least;
  return std::nullopt;
}

// Reads `output_config.effort` into a variable of the chat template. It does not switch reasoning
// on or off, as a chat's `reasoning_effort` does: that is the purpose of `thinking`.
std::optional<ApiError> read_anthropic_effort(FieldReader& config, Json& chat) {
  const auto effort = config.string(Body::kOutputConfig["effort"]);
  if (config.error() || !effort) return config.error();
  if (!is_reasoning_effort(*effort)) {
    return invalid_value("output_config.effort",
                         fmt::format("`output_config.effort` is \"{}\"; it must be one of {}.",
                                     printable(*effort, 40), kReasoningEfforts));
  }
  Json& variables = chat["chat_template_kwargs"];
  if (variables.is_null()) variables = Json::object();
  if (variables.is_object()) variables.emplace("reasoning_effort", *effort);
  return std::nullopt;
}

// Reads `output_config`, and `output_format`, the earlier name of its `format`.
std::optional<ApiError> read_output_config(FieldReader& fields, const CallContext& context,
                                           Json& chat, FieldNames& names) {
  std::string param = "output_format";
  const Json* format = fields.object(Body::kMessagesPrompt["output_format"]);
  if (const Json* const config = fields.object(Body::kMessagesPrompt["output_config"])) {
    FieldReader inner(*config, "output_config.");
    if (const Json* const newer = inner.object(Body::kOutputConfig["format"])) {
      format = newer;
      param = "output_config.format";
    }
    if (inner.error()) return inner.error();
    if (auto error = read_anthropic_effort(inner, chat)) return error;
    context.note_unasked(inner);
  }
  if (fields.error() || format == nullptr) return fields.error();
  FieldReader shape(*format, param + ".");
  const std::string type = shape.string(Body::kOutputFormat["type"]).value_or("");
  const Json* const schema = shape.object(Body::kOutputFormat["schema"]);
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

// Converts the request to the form of /v1/chat/completions. Fields with the same name in both are
// copied; `names` gets the names that differ.
std::optional<ApiError> chat_of_messages(const CallContext& context, const Json& body,
                                         bool needs_max_tokens, Json& chat, FieldNames& names) {
  chat = body;
  for (const char* name : {"system", "messages", "tools", "tool_choice", "thinking",
                           "stop_sequences", "metadata", "output_config", "output_format"}) {
    chat.erase(name);
  }
  FieldReader fields(body);
  const auto stop = fields.strings(Body::kMessagesPrompt["stop_sequences"]);
  if (stop) {
    chat["stop"] = *stop;
    names.add("stop", "stop_sequences");
  }
  if (const Json* metadata = fields.object(Body::kMessagesPrompt["metadata"])) {
    FieldReader inner(*metadata, "metadata.");
    const auto user = inner.string(Body::kMetadata["user_id"]);
    if (inner.error()) return inner.error();
    if (user) {
      chat["user"] = *user;
      names.add("user", "metadata.user_id");
    }
  }
  refuse_several_answers(fields);
  if (fields.error()) return fields.error();
  if (needs_max_tokens && fields.find(Body::kMessages["max_tokens"]) == nullptr) {
    return missing_parameter("max_tokens");
  }
  fields.integer(Body::kMessages["max_tokens"]);
  if (fields.error()) return fields.error();
  if (auto error = read_anthropic_messages(context, fields, chat)) return error;
  if (auto error = translate_tools(fields, read_anthropic_tool, chat, names)) return error;
  note_unused_tools(fields, context, {"custom"});
  if (auto error = read_anthropic_tool_choice(fields, chat)) return error;
  if (auto error = read_output_config(fields, context, chat, names)) return error;
  return read_anthropic_thinking(fields, context, chat, names);
}

// Joins blocks of a message as lines if the template cannot read lists.
CallContext messages_context(const CallContext& context) {
  CallContext own = context;
  own.part_separator = "\n";
  return own;
}

}  // namespace

PrepareResult prepare_messages(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  Json chat;
  const CallContext own = messages_context(context);
  FieldNames names;
  if (auto error = chat_of_messages(own, object, /*needs_max_tokens=*/true, chat, names)) {
    return *error;
  }
  object = nullptr;
  PrepareResult result = prepare_chat_call(own, chat, make_messages_adapter);
  if (auto* const error = std::get_if<ApiError>(&result)) names.restore(*error);
  return result;
}

AnswerResult answer_count_tokens(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  Json chat;
  const CallContext own = messages_context(context);
  FieldNames names;
  if (auto error = chat_of_messages(own, object, /*needs_max_tokens=*/false, chat, names)) {
    return *error;
  }
  FieldReader fields(chat);
  static_cast<void>(read_model_name(fields, context));
  const ToolFields tools = read_tool_fields(fields);
  ChatPrompt prompt;
  if (auto error = read_chat_prompt(fields, own, tools, kMaxTokenizedTokens, prompt)) {
    names.restore(*error);
    return *error;
  }
  JsonPieces answer;
  answer.begin_object().key("input_tokens").value(prompt.ids.size()).end_object();
  return JsonAnswer{.body = std::move(answer), .shown = nullptr};
}

}  // namespace heddle::server

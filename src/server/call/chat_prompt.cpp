// SPDX-License-Identifier: Apache-2.0
#include "server/call/chat_prompt.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat/arrangement.h"
#include "core/printable.h"
#include "server/call/body_fields.h"
#include "server/call/chat_messages.h"
#include "server/call/prompt_list.h"
#include "server/call/tool_list.h"
#include "server/http/http_message.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;
using parsers::ReasoningFormat;

void read_effort(FieldReader& fields, const Field& name, Json& variables) {
  const Json* effort = fields.find(name);
  if (effort == nullptr) return;
  const bool known_word =
      effort->is_string() && is_reasoning_effort(effort->get_ref<const std::string&>());
  const bool is_fraction =
      effort->is_number() && effort->get<double>() >= 0 && effort->get<double>() <= 0.99;
  if (!known_word && !is_fraction) {
    fields.fail(invalid_value(
        fields.name_of(name),
        fmt::format("`{}` is {}; it must be {} or a number from 0 to 0.99.", fields.name_of(name),
                    printable(dump_json(*effort), 42), kReasoningEfforts)));
    return;
  }
  const bool thinking = *effort != "none";
  // emplace() keeps a value that the request has set.
  variables.emplace("thinking", Json(thinking));
  variables.emplace("enable_thinking", Json(thinking));
  variables.emplace("reasoning_effort", Json(*effort));
}

constexpr const char* kFieldsOfRequests[] = {"messages", "tools", "add_generation_prompt"};

// The variables of the template besides messages and tools. `defaults` is the text of a JSON
// object, or empty.
Json read_template_variables(FieldReader& fields, const std::string& defaults) {
  Json variables = Json::object();
  if (const Json* extra = fields.object(Body::kThinking["chat_template_kwargs"]))
    variables = *extra;
  for (const char* name : kFieldsOfRequests) {
    if (!variables.contains(name)) continue;
    fields.fail(invalid_value("chat_template_kwargs",
                              fmt::format("`chat_template_kwargs` cannot replace `{}`, which "
                                          "the request says by fields of its own.",
                                          name)));
  }
  read_effort(fields, Body::kTemplate["reasoning_effort"], variables);
  if (const Json* reasoning = fields.object(Body::kThinking["reasoning"])) {
    FieldReader inner(*reasoning, "reasoning.");
    read_effort(inner, Body::kReasoning["effort"], variables);
    if (const auto enabled = inner.boolean(Body::kReasoning["enabled"])) {
      variables.emplace("thinking", Json(*enabled));
      variables.emplace("enable_thinking", Json(*enabled));
    }
    if (inner.error()) fields.fail(*inner.error());
  }
  if (defaults.empty()) return variables;
  Json preset = Json::parse(defaults);
  for (auto& [name, value] : preset.items()) variables.emplace(name, std::move(value));
  return variables;
}

// Enough tokens to contain a tag at the end of a prompt of ids.
constexpr size_t kPromptEndTokens = 32;

// Renames reasoning to "thinking" for gpt-oss's template, which only accepts it in messages without
// content.
void name_harmony_thinking(Json& messages) {
  for (Json& message : messages) {
    const auto reasoning = message.find("reasoning_content");
    if (reasoning == message.end() || message["content"] != "") continue;
    message["thinking"] = Json(*reasoning);
  }
}

}  // namespace

bool is_reasoning_effort(std::string_view word) {
  for (std::string_view rest = kReasoningEfforts; !rest.empty();) {
    const size_t end = std::min(rest.find(", "), rest.size());
    if (rest.substr(0, end) == word) return true;
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return false;
}

Status check_template_variables(std::string_view text) {
  if (text.empty()) return {};
  const Json variables = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!variables.is_object()) {
    return invalid_argument(
        fmt::format("{} is no JSON object; write one as '{{\"enable_thinking\": false}}'",
                    printable(text, 80)));
  }
  for (const char* name : kFieldsOfRequests) {
    if (variables.contains(name)) {
      return invalid_argument(fmt::format("it cannot set {}, which every request says", name));
    }
  }
  return {};
}

std::optional<ApiError> read_chat_prompt(FieldReader& fields, const CallContext& context,
                                         const ToolFields& tools, size_t max_tokens,
                                         ChatPrompt& prompt) {
  const Json variables = read_template_variables(fields, context.answers.chat_template_kwargs);
  const bool continue_final = fields.flag(Body::kTemplate["continue_final_message"]);
  const bool generation_prompt = fields.flag(Body::kTemplate["add_generation_prompt"]);
  auto ids = fields.token_ids(Body::kChatInput["input_ids"], context.model.vocab_size);
  const Json* messages = fields.find(Body::kChatInput["messages"]);
  if (fields.error()) return fields.error();
  const ReasoningFormat reasoning = context.formats.reasoning;
  if (ids) {
    if (ids->empty()) return invalid_value("input_ids", "`input_ids` is empty.");
    prompt.ids = std::move(*ids);
    const std::span<const TokenId> all(prompt.ids);
    const auto end = all.last(std::min(all.size(), kPromptEndTokens));
    const std::string last_text = context.codec.decode(end, false);
    prompt.starts_in_reasoning = parsers::starts_in_reasoning(reasoning, last_text);
    prompt.reasoning_is_closed = parsers::reasoning_is_closed(reasoning, last_text);
    return std::nullopt;
  }
  if (messages == nullptr) return missing_parameter("messages");

  Json normalised;
  if (auto error = normalise_messages(context, *messages, normalised)) return error;
  if (reasoning == ReasoningFormat::kHarmony) name_harmony_thinking(normalised);
  std::shared_ptr<const Json> usable = tools.usable();
  if (usable != nullptr) {
    const bool has_format = context.formats.tool_calls != parsers::ToolCallFormat::kNone;
    const bool is_shown = context.codec.shows_tools();
    if (has_format ? !is_shown : tools.choice.forces_call()) {
      list_tools(*usable, tools.choice, /*as_json=*/!has_format, normalised);
      usable = nullptr;  // list_tools() has put them into the text, so the template need not
    } else if (!is_shown) {
      context.note_unused("field", "tools",
                          "the chat template shows no tools, and calls have no format. "
                          "`tool_choice` \"required\" or the name of a tool forces a call; "
                          "--tool-call-parser names the format that the model knows");
    }
  }
  std::string unfinished;
  if (continue_final) {
    if (normalised.back()["role"] != "assistant") {
      return invalid_value("continue_final_message",
                           "`continue_final_message` needs an assistant message at the end.");
    }
    if (normalised.size() == 1) {
      return invalid_value("continue_final_message",
                           "`continue_final_message` needs a message before the assistant's, for "
                           "example the user's question.");
    }
    unfinished = chat::joined_content(normalised.back(), context.part_separator);
    normalised.erase(normalised.size() - 1);
  }
  auto text = context.codec.render_conversation(normalised, usable != nullptr ? *usable : Json(),
                                                generation_prompt || continue_final, variables,
                                                context.part_separator);
  normalised = nullptr;
  if (!text.ok()) {
    if (text.status().code() == StatusCode::kUnimplemented ||
        text.status().code() == StatusCode::kInvalidArgument ||
        text.status().code() == StatusCode::kResourceExhausted) {
      return invalid_value("messages", text.status().message());
    }
    return error_from_status(text.status(), context.id);
  }
  prompt.starts_in_reasoning = parsers::starts_in_reasoning(reasoning, *text, unfinished);
  prompt.reasoning_is_closed = parsers::reasoning_is_closed(reasoning, *text, unfinished);
  // The template writes all special tokens, including the first one.
  if (auto error = encode_prompt(*text + unfinished, /*add_special_tokens=*/false, max_tokens,
                                 "messages", context, prompt.ids)) {
    return error;
  }
  if (prompt.ids.empty()) {
    return invalid_value("messages", "`messages` render to an empty prompt.");
  }
  return std::nullopt;
}

}  // namespace heddle::server

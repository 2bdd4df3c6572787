// SPDX-License-Identifier: Apache-2.0
#include "server/api/responses/responses.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/api/native/tokenize.h"
#include "server/api/openai/chat_completions.h"
#include "server/api/responses/response_store.h"
#include "server/api/responses/responses_answer.h"
#include "server/api/responses/responses_input.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/chat_prompt.h"
#include "server/call/field_reader.h"
#include "server/call/tool_fields.h"
#include "server/http/caller.h"
#include "server/http/http_message.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

std::optional<ApiError> read_text_format(FieldReader& fields, const CallContext& context,
                                         Json& chat) {
  const Json* text = fields.object(Body::kResponsesPrompt["text"]);
  if (fields.error()) return fields.error();
  if (text == nullptr) return std::nullopt;
  FieldReader inner(*text, "text.");
  const Json* format = inner.object(Body::kText["format"]);
  if (inner.error()) return inner.error();
  context.note_unasked(inner);
  if (format == nullptr) return std::nullopt;
  FieldReader shape(*format, "text.format.");
  const std::string type = shape.string(Body::kTextFormat["type"]).value_or("");
  if (shape.error()) return shape.error();
  Json response_format = {{"type", type}};
  if (type == "json_schema") {
    for (const Field& field : Body::kTextFormat.fields) {
      if (field.name == "type") continue;
      const Json* const value = shape.find(field);
      if (value != nullptr) response_format["json_schema"][std::string(field)] = *value;
    }
  }
  chat["response_format"] = std::move(response_format);
  return std::nullopt;
}

// Refuses fields that refer to state which only OpenAI's servers have.
void refuse_unserved_response_fields(FieldReader& fields) {
  if (fields.find("conversation") != nullptr) {
    fields.fail(unsupported_parameter("conversation",
                                      "go on from a response with `previous_response_id`, or send "
                                      "all items in `input`"));
  }
  if (fields.find("prompt") != nullptr) {
    fields.fail(unsupported_parameter(
        "prompt", "no templates are kept; send the text in `instructions` and `input`"));
  }
  const auto truncation = fields.string(Body::kResponsesPrompt["truncation"]);
  if (truncation && *truncation != "auto" && *truncation != "disabled") {
    fields.fail(invalid_value(
        "truncation", fmt::format("`truncation` is \"{}\"; it must be \"disabled\" or \"auto\".",
                                  printable(*truncation, 40))));
  }
}

// Reads the limit of the output by its name in this API, else by the names in a chat.
std::optional<int64_t> read_max_output_tokens(FieldReader& fields) {
  std::optional<int64_t> limit;
  for (const std::string_view name :
       {Body::kResponses["max_output_tokens"].name, Body::kLimits["max_completion_tokens"].name,
        Body::kLimits["max_tokens"].name}) {
    const Json* const sent = fields.find(name);
    if (sent != nullptr && *sent == -1) continue;  // no limit except the context
    const auto value = fields.integer(name, 1);
    if (!limit) limit = value;
  }
  return limit;
}

// Switches log probabilities on if a number of alternatives is given or `include` names them.
void read_asked_logprobs(FieldReader& fields, const CallContext& context, Json& chat) {
  const auto num_top = fields.integer(Body::kResponsesPrompt["top_logprobs"]);
  const auto included = fields.strings(Body::kResponsesPrompt["include"]);
  bool is_included = false;
  for (const std::string& name : included.value_or(std::vector<std::string>())) {
    const bool is_logprobs = name == "message.output_text.logprobs";
    is_included |= is_logprobs;
    if (!is_logprobs) context.note_unused("value of `include`", name);
  }
  if (is_included || num_top.value_or(0) > 0) chat["logprobs"] = true;
  if (chat.value("logprobs", Json()) != true) chat.erase("top_logprobs");
}

// Limits responses with log probabilities, which are a tree of values in memory, unlike the answer
// of a chat.
std::optional<ApiError> check_num_logprobs(const Request& request) {
  if (!request.return_logprobs) return std::nullopt;
  const int64_t each = 1 + request.top_logprobs;
  if (request.stop.max_new_tokens <= kMaxResponseLogprobs / each) return std::nullopt;
  return invalid_value("max_output_tokens",
                       fmt::format("With `top_logprobs` {} an answer may have {} tokens; set "
                                   "`max_output_tokens` to no more than that.",
                                   request.top_logprobs, kMaxResponseLogprobs / each));
}

// The shortest decimal of a float: 0.7f as 0.7, not as the double 0.699999988.
double shown(float number) { return std::strtod(fmt::format("{}", number).c_str(), nullptr); }

// The fields of the request that the answer repeats, with their defaults; `user` has no default.
Json repeated_fields(const Json& body, const ModelInfo& model) {
  const auto field = [&body](const char* name, Json otherwise) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? otherwise : *found;
  };
  Json repeated = {{"instructions", field("instructions", nullptr)},
                   {"max_output_tokens", field("max_output_tokens", nullptr)},
                   {"background", field("background", false)},
                   {"metadata", field("metadata", Json::object())},
                   {"parallel_tool_calls", field("parallel_tool_calls", true)},
                   {"previous_response_id", field("previous_response_id", nullptr)},
                   {"reasoning", field("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
                   {"store", field("store", true)},
                   {"temperature", field("temperature", shown(model.default_sampling.temperature))},
                   {"text", field("text", {{"format", {{"type", "text"}}}})},
                   {"tool_choice", field("tool_choice", "auto")},
                   {"tools", field("tools", Json::array())},
                   {"top_logprobs", field("top_logprobs", 0)},
                   {"top_p", field("top_p", shown(model.default_sampling.top_p))},
                   {"truncation", "disabled"}};
  if (Json user = field("user", nullptr); !user.is_null()) repeated["user"] = std::move(user);
  return repeated;
}

// Limits the repeated fields, because a response is written whole many times: in events, and for
// every GET.
std::optional<ApiError> check_repeated(const Json& repeated) {
  const size_t num_bytes = dump_json(repeated).size();
  if (num_bytes <= kMaxRepeatedBytes) return std::nullopt;
  return ApiError{.status = 413,
                  .code = "request_too_large",
                  .message = fmt::format("A response repeats `instructions`, `tools`, `text` and "
                                         "other fields of its request, which have {} bytes here; "
                                         "at most {} are allowed.",
                                         num_bytes, kMaxRepeatedBytes)};
}

// Reads the items of the response that this one continues.
std::optional<ApiError> read_previous(FieldReader& fields, const CallContext& context,
                                      const std::string& holder, Json& items) {
  const auto id = fields.string(Body::kResponsesPrompt["previous_response_id"]);
  if (fields.error()) return fields.error();
  if (!id) return std::nullopt;
  if (!context.head.stored_refusal.empty()) {
    return stored_refused(context.head, "previous_response_id");
  }
  const auto previous =
      context.responses == nullptr ? nullptr : context.responses->find(*id, holder);
  if (previous == nullptr) return response_not_found(*id, "previous_response_id");
  if (previous->is_running) {
    return invalid_value("previous_response_id",
                         fmt::format("The response `{}` still runs; go on from it once it has "
                                     "ended.",
                                     printable(*id, 128)));
  }
  items = *previous->input;
  append_output_items(previous->output, items);
  return std::nullopt;
}

// Reserves the id under which the response will be stored, because clients fetch it only by that
// id. A header may give the same id to several calls (a proxy does so for all calls of a trace):
// all calls after the first get generated ids.
std::optional<ApiError> claim_response_id(FieldReader& fields, CallContext& context,
                                          ResponsesAnswer& answer) {
  if (answer.keep_in == nullptr) return std::nullopt;
  const auto rid = fields.string(Body::kCall["rid"]);
  if (rid && !is_request_id(*rid)) return std::nullopt;  // the chat API refuses such an id later
  answer.claim = ResponseStore::claim(answer.keep_in, rid.value_or(context.id), answer.holder);
  if (answer.claim != nullptr) return std::nullopt;
  if (rid) {
    return invalid_value(
        "rid", fmt::format("`rid` \"{}\" belongs to a response that runs or is kept.", *rid));
  }
  context.id = new_request_id("resp_");
  answer.claim = ResponseStore::claim(answer.keep_in, context.id, answer.holder);
  return std::nullopt;
}

// Converts the request to the form of /v1/chat/completions, and fills in what the answer needs.
// `input` is removed from `object`; `items` become the input items of the response.
std::optional<ApiError> chat_of_response(const CallContext& context, Json& object,
                                         ResponsesAnswer& answer, Json& items, Json& chat) {
  FieldReader fields(object);
  const auto instructions = fields.string(Body::kResponsesPrompt["instructions"]);
  answer.holder = holder_of(context.head.key);
  Json messages = Json::array();
  if (auto error = read_previous(fields, context, answer.holder, items)) return error;
  const bool may_store = context.head.stored_refusal.empty();
  const KnownItems known{.store = may_store ? context.responses.get() : nullptr,
                         .holder = answer.holder};
  if (auto error = read_responses_input(fields, context, known, items, messages)) return error;
  static_cast<void>(read_metadata(fields));
  refuse_several_answers(fields);
  refuse_unserved_response_fields(fields);
  if (fields.error()) return fields.error();

  object.erase("input");  // moved to `items`
  chat = object;
  for (const char* name :
       {"instructions", "tools", "tool_choice", "text", "reasoning", "previous_response_id",
        "store", "include", "truncation", "metadata", "background"}) {
    chat.erase(name);
  }
  read_asked_logprobs(fields, context, chat);
  if (instructions && !instructions->empty()) {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *instructions}});
  }
  chat["messages"] = std::move(messages);
  if (auto error = answer.tools.read(fields, chat)) return error;
  note_unused_tools(fields, context, {"function", "custom", "namespace"});
  if (auto error = read_text_format(fields, context, chat)) return error;
  if (const Json* reasoning = fields.object(Body::kThinking["reasoning"])) {
    FieldReader inner(*reasoning, "reasoning.");
    for (const Field& field : Body::kReasoning.fields) {
      if (const Json* value = inner.find(field)) {
        chat["reasoning"][std::string(field)] = *value;
      }
    }
    context.note_unasked(inner);
  }
  return fields.error();
}

// Renames the fields in a chat's error to those of this API.
ApiError named_here(ApiError error, const ResponsesAnswer& answer) {
  FieldNames names;
  names.add("messages", "input");
  names.add("response_format", "text.format");
  names.add("response_format.json_schema", "text.format");
  names.add("reasoning_effort", "reasoning.effort");
  answer.tools.name_fields(names);
  names.restore(error);
  return error;
}

}  // namespace

PrepareResult prepare_responses(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const auto max_tokens = read_max_output_tokens(fields);
  // A request from a web page of another origin is answered, but not stored.
  const bool may_store = context.head.stored_refusal.empty();
  const bool store = fields.flag(Body::kResponses["store"]) && may_store;
  const bool is_background = fields.flag(Body::kResponses["background"]);
  if (is_background && !may_store) return stored_refused(context.head, "background");
  if (is_background && !store) {
    fields.fail(invalid_value("background",
                              "`background` needs `store`: the response is fetched "
                              "by its id."));
  }
  if (fields.error()) return *fields.error();
  ResponsesAnswer answer;
  Json items = Json::array();
  Json chat;
  if (auto error = chat_of_response(context, object, answer, items, chat)) return *error;
  answer.request = repeated_fields(object, context.model);
  if (!may_store) answer.request["store"] = false;
  answer.request["max_output_tokens"] = max_tokens ? Json(*max_tokens) : Json();
  if (auto error = check_repeated(answer.request)) return *error;
  if (store && context.responses != nullptr) {
    answer.keep_in = context.responses;
    answer.input_bytes = dump_json(items).size();
    answer.input = std::make_shared<const Json>(std::move(items));
  }
  items = nullptr;
  CallContext own = context;
  own.part_separator = "";
  if (auto error = claim_response_id(fields, own, answer)) return *error;
  object = nullptr;
  std::optional<BackgroundAnswer> background;
  answer.is_background = is_background;
  const auto make_adapter = [&](ChatAnswerOptions options) {
    if (is_background) {
      StoredResponse running{.body = running_response(options, answer),
                             .input = answer.input,
                             .output = nullptr,
                             .input_bytes = answer.input_bytes,
                             .holder = answer.holder,
                             .is_running = true};
      background = {.queued = with_state(running.body, "queued"), .running = std::move(running)};
    }
    return make_responses_adapter(std::move(options), std::move(answer));
  };
  PrepareResult result = prepare_chat_call(own, chat, make_adapter, SamplingSpelling::kResponses);
  // The adapter, which owns the answer, is only made if there is no error.
  if (auto* const error = std::get_if<ApiError>(&result)) return named_here(*error, answer);
  if (auto* const call = std::get_if<PreparedCall>(&result)) {
    if (auto error = check_num_logprobs(call->requests.front())) return *error;
    call->background = std::move(background);
  }
  return result;
}

AnswerResult answer_response_tokens(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  ResponsesAnswer answer;
  Json items = Json::array();
  Json chat;
  if (auto error = chat_of_response(context, object, answer, items, chat)) return *error;
  FieldReader fields(chat);
  static_cast<void>(read_model_name(fields, context));
  const ToolFields tools = read_tool_fields(fields);
  ChatPrompt prompt;
  if (auto error = read_chat_prompt(fields, context, tools, kMaxTokenizedTokens, prompt)) {
    return named_here(*error, answer);
  }
  JsonPieces count;
  count.begin_object().key("object").value("response.input_tokens");
  count.key("input_tokens").value(prompt.ids.size()).end_object();
  return JsonAnswer{.body = std::move(count), .shown = nullptr};
}

}  // namespace heddle::server

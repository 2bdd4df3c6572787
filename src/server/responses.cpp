// SPDX-License-Identifier: Apache-2.0
#include "server/responses.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "core/check.h"
#include "server/call_fields.h"
#include "server/caller.h"
#include "server/chat_completions.h"
#include "server/delta_adapter.h"
#include "server/field_reader.h"
#include "server/json_text.h"
#include "server/key_ring.h"
#include "server/tool_fields.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// ---- The answer ----

Json describe(const ChatAnswerOptions& options, const ResponsesAnswer& answer, const char* status,
              Json output) {
  Json response = {
      {"id", options.id},       {"object", "response"},       {"created_at", options.created},
      {"status", status},       {"error", nullptr},           {"incomplete_details", nullptr},
      {"model", options.model}, {"output", std::move(output)}};
  response.update(answer.request);
  return response;
}

class ResponsesAdapter final : public DeltaAdapter {
 public:
  ResponsesAdapter(ChatAnswerOptions options, ResponsesAnswer answer)
      : DeltaAdapter(std::move(options)), answer_of_(std::move(answer)) {}

  JsonPieces body() override {
    add_items_of_answer();
    written_ = dump_json(complete_response());
    keep();
    JsonPieces body;
    body.around(written_);
    return body;
  }

  void error(const ApiError& failure, std::string& out) override {
    Json response = response_json("failed");
    response["error"] = {{"code", failure.code.empty() ? "server_error" : failure.code},
                         {"message", failure.message}};
    emit("response.failed", {{"response", std::move(response)}}, out);
  }

 protected:
  void begin(std::string& out) override {
    emit("response.created", {{"response", response_json("in_progress")}}, out);
    emit("response.in_progress", {{"response", response_json("in_progress")}}, out);
  }

  void deliver(const parsers::AnswerDelta& delta, std::string& out) override {
    if (const auto* const more = std::get_if<parsers::ReasoningDelta>(&delta)) {
      open(Item::kReasoning, out);
      text_ += more->text;
      emit("response.reasoning_text.delta", part_fields({{"delta", more->text}}), out);
    } else if (const auto* const text = std::get_if<parsers::ContentDelta>(&delta)) {
      open(Item::kMessage, out);
      text_ += text->text;
      emit("response.output_text.delta",
           part_fields({{"delta", text->text}, {"logprobs", logprobs_since(num_shown_)}}), out);
      num_shown_ = content_logprobs().size();
    } else if (const auto* const call = std::get_if<parsers::ToolCallBegin>(&delta)) {
      close(out);
      item_ = Item::kCall;
      call_ = {.id = call->id, .name = call->name, .arguments = {}};
      emit("response.output_item.added",
           {{"output_index", output_.size()}, {"item", call_item("in_progress")}}, out);
    } else if (const auto* const arguments = std::get_if<parsers::ArgumentsDelta>(&delta)) {
      call_.arguments += arguments->json;
      emit("response.function_call_arguments.delta", item_fields({{"delta", arguments->json}}),
           out);
    } else {
      close(out, std::get<parsers::ToolCallEnd>(delta).complete);
    }
  }

  void finish(std::string& out) override {
    close(out, finished().reason == FinishReason::kStop);
    Json response = complete_response();
    const std::string status = response["status"];
    written_ = dump_json(response);
    keep();
    emit(status == "completed" ? "response.completed" : "response.incomplete",
         {{"response", std::move(response)}}, out);
  }

 private:
  enum class Item { kNone, kReasoning, kMessage, kCall };

  void emit(const char* type, Json fields, std::string& out) {
    Json event = {{"type", type}, {"sequence_number", num_events_++}};
    event.update(fields);
    append_typed_event(event, out);
  }

  // "msg_HEX_0" of "resp_HEX".
  [[nodiscard]] std::string item_id(const char* prefix) const {
    const size_t begin = options().id.find('_');
    return fmt::format("{}_{}_{}", prefix,
                       options().id.substr(begin == std::string::npos ? 0 : begin + 1),
                       output_.size());
  }

  [[nodiscard]] std::string open_item_id() const {
    if (item_ == Item::kReasoning) return item_id("rs");
    return item_id(item_ == Item::kMessage ? "msg" : "fc");
  }

  [[nodiscard]] Json item_fields(Json more) const {
    Json fields = {{"item_id", open_item_id()}, {"output_index", output_.size()}};
    fields.update(more);
    return fields;
  }

  [[nodiscard]] Json part_fields(Json more) const {
    Json fields = item_fields({{"content_index", 0}});
    fields.update(more);
    return fields;
  }

  [[nodiscard]] static Json text_part(const std::string& text, Json logprobs) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", std::move(logprobs)}};
  }

  // Of the content's tokens from `index` on; empty where none were asked for.
  [[nodiscard]] Json logprobs_since(size_t index) const {
    std::string list = "[";
    for (size_t i = index; i < content_logprobs().size(); ++i) {
      if (i > index) list += ',';
      append_token_logprob(content_logprobs(), i, *options().codec, list);
    }
    return Json::parse(list + "]");
  }

  [[nodiscard]] Json message_item(const char* status, Json content) const {
    return {{"type", "message"},
            {"id", item_id("msg")},
            {"role", "assistant"},
            {"status", status},
            {"content", std::move(content)}};
  }

  [[nodiscard]] Json reasoning_item(const char* status, Json content) const {
    return {{"type", "reasoning"},
            {"id", item_id("rs")},
            {"summary", Json::array()},
            {"content", std::move(content)},
            {"status", status}};
  }

  [[nodiscard]] Json call_item(const char* status) const {
    return {{"type", "function_call"}, {"id", item_id("fc")},          {"call_id", call_.id},
            {"name", call_.name},      {"arguments", call_.arguments}, {"status", status}};
  }

  void open(Item kind, std::string& out) {
    if (item_ == kind) return;
    close(out);
    item_ = kind;
    const bool is_message = kind == Item::kMessage;
    emit("response.output_item.added",
         {{"output_index", output_.size()},
          {"item", is_message ? message_item("in_progress", Json::array())
                              : reasoning_item("in_progress", Json::array())}},
         out);
    if (is_message) {
      emit("response.content_part.added", part_fields({{"part", text_part("", Json::array())}}),
           out);
    }
  }

  // Sends the end of the open item. `complete` is false for one that was cut off.
  void close(std::string& out, bool complete = true) {
    if (item_ == Item::kNone) return;
    const char* status = complete ? "completed" : "incomplete";
    Json done;
    if (item_ == Item::kMessage) {
      const Json logprobs = logprobs_since(num_logprobs_before_);
      emit("response.output_text.done", part_fields({{"text", text_}, {"logprobs", logprobs}}),
           out);
      const Json part = text_part(text_, logprobs);
      emit("response.content_part.done", part_fields({{"part", part}}), out);
      done = message_item(status, Json::array({part}));
      num_logprobs_before_ = content_logprobs().size();
    } else if (item_ == Item::kReasoning) {
      emit("response.reasoning_text.done", part_fields({{"text", text_}}), out);
      done = reasoning_item(status, Json::array({{{"type", "reasoning_text"}, {"text", text_}}}));
    } else {
      emit("response.function_call_arguments.done",
           item_fields({{"name", call_.name}, {"arguments", call_.arguments}}), out);
      done = call_item(status);
    }
    emit("response.output_item.done", {{"output_index", output_.size()}, {"item", done}}, out);
    output_.push_back(std::move(done));
    text_.clear();
    item_ = Item::kNone;
  }

  // Of an answer that is not streamed.
  void add_items_of_answer() {
    output_ = Json::array();
    const parsers::AssembledAnswer& all = answer();
    const char* status = finished().reason == FinishReason::kStop ? "completed" : "incomplete";
    if (!all.reasoning.empty()) {
      output_.push_back(reasoning_item(
          status, Json::array({{{"type", "reasoning_text"}, {"text", all.reasoning}}})));
    }
    if (!all.content.empty()) {
      output_.push_back(
          message_item(status, Json::array({text_part(all.content, logprobs_since(0))})));
    }
    for (const parsers::ToolCall& call : all.calls) {
      call_ = call;
      output_.push_back(call_item("completed"));
    }
  }

  [[nodiscard]] Json response_json(const char* status) const {
    return describe(options(), answer_of_, status, output_);
  }

  [[nodiscard]] Json complete_response() const {
    const FinishReason reason = finished().reason;
    Json response = response_json(reason == FinishReason::kStop     ? "completed"
                                  : reason == FinishReason::kLength ? "incomplete"
                                                                    : "cancelled");
    if (reason == FinishReason::kLength) {
      response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    response["usage"] = {
        {"input_tokens", counts().prompt_tokens},
        {"input_tokens_details",
         {{"cached_tokens", counts().cached_tokens}, {"cache_write_tokens", 0}}},
        {"output_tokens", counts().completion_tokens},
        {"output_tokens_details", {{"reasoning_tokens", counts().reasoning_tokens}}},
        {"total_tokens", counts().prompt_tokens + counts().completion_tokens}};
    return response;
  }

  void keep() {
    if (answer_of_.keep_in == nullptr) return;
    Json messages = std::move(answer_of_.messages);
    const parsers::AssembledAnswer& all = answer();
    Json message = {{"role", "assistant"}, {"content", all.content}};
    for (const parsers::ToolCall& call : all.calls) {
      message["tool_calls"].push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    messages.push_back(std::move(message));
    StoredResponse response{
        .body = written_, .messages = std::move(messages), .holder = answer_of_.holder};
    const auto store = std::exchange(answer_of_.keep_in, nullptr);
    if (answer_of_.is_background) {
      store->replace(options().id, std::move(response));
    } else {
      store->put(options().id, std::move(response));
    }
  }

  ResponsesAnswer answer_of_;
  Json output_ = Json::array();     // items that are complete
  Item item_ = Item::kNone;         // the open one
  std::string text_;                // of the open item
  size_t num_shown_ = 0;            // of content_logprobs(), in events
  size_t num_logprobs_before_ = 0;  // of content_logprobs(), those of complete items
  parsers::ToolCall call_;
  std::string written_;  // the whole response
  int64_t num_events_ = 0;
};

// ---- The request ----

// Text of a string, or of parts that are text. `shows_types`: other parts become "[TYPE]".
std::optional<ApiError> read_parts_of_item(const Json& content, const std::string& param,
                                           std::string& text, bool shows_types = false) {
  if (content.is_string()) {
    text = content.get<std::string>();
    return std::nullopt;
  }
  if (!content.is_array()) return invalid_type(param, "a string or a list of parts");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", param, i);
    if (!content[i].is_object()) return invalid_type(name, "an object");
    FieldReader part(content[i], name + ".");
    const std::string type = part.string("type").value_or("");
    if (part.error()) return part.error();
    if (shows_types && !part.find("text")) {
      text += fmt::format("[{}]", printable(type, 40));
      continue;
    }
    if (type == "input_image" || type == "input_file" || type == "input_audio") {
      return ApiError{.code = "unsupported_parameter",
                      .message = fmt::format("`{}` is a part of type {}; this model takes text "
                                             "only.",
                                             name, type),
                      .param = name};
    }
    const char* const field = type == "refusal" ? "refusal" : "text";
    const auto more = part.string(field);
    if (part.error()) return part.error();
    if (!more) return missing_parameter(fmt::format("{}.{}", name, field));
    text += *more;
  }
  return std::nullopt;
}

class ItemReader {
 public:
  explicit ItemReader(Json& messages) : messages_(messages) {}

  std::optional<ApiError> read(const Json& value, const std::string& param) {
    if (!value.is_object()) return invalid_type(param, "an object");
    FieldReader item(value, param + ".");
    const std::string type = item.string("type").value_or("message");
    if (item.error()) return item.error();
    if (type == "message") return read_message_item(item, param);
    if (type == "function_call") return read_call(item, param);
    if (type == "reasoning") return read_reasoning(item, param);
    if (type.ends_with(kOutputSuffix)) return read_call_output(item, param);
    if (type.ends_with(kCallSuffix)) return read_foreign_call(value, type, item, param);
    if (type.starts_with("mcp_") || type == "compaction") return std::nullopt;
    return invalid_value(param + ".type",
                         fmt::format("`{}.type` is \"{}\"; it must be message, function_call, "
                                     "function_call_output, reasoning or one that OpenAI's tools "
                                     "leave.",
                                     param, printable(type, 40)));
  }

 private:
  static constexpr std::string_view kCallSuffix = "_call";
  static constexpr std::string_view kOutputSuffix = "_call_output";

  // A call of another tool than a function. Where the client ran it, it has an id to which an
  // output belongs: it is a call like others, named as the tool. A call that OpenAI's servers ran
  // themselves becomes text at the beginning of the assistant's next message.
  std::optional<ApiError> read_foreign_call(const Json& value, const std::string& type,
                                            FieldReader& item, const std::string& param) {
    const auto id = item.string("call_id");
    if (item.error()) return item.error();
    Json shown = value;
    for (const char* const name : {"type", "id", "call_id", "status", "result"}) shown.erase(name);
    if (!id) {
      notes_ += fmt::format("[{}: {}]\n", type, dump_json(shown));
      return std::nullopt;
    }
    const Json name = shown.value("name", Json());
    shown.erase("name");
    const Json call = {
        {"call_id", *id},
        {"name", name.is_string() ? name : Json(type.substr(0, type.size() - kCallSuffix.size()))},
        {"arguments", dump_json(shown)}};
    FieldReader translated(call, param + ".");
    return read_call(translated, param);
  }

  std::optional<ApiError> read_message_item(FieldReader& item, const std::string& param) {
    const auto role = item.string("role");
    const Json* content = item.find("content");
    if (item.error()) return item.error();
    if (!role) return missing_parameter(param + ".role");
    if (content == nullptr) return missing_parameter(param + ".content");
    std::string text;
    if (auto error = read_parts_of_item(*content, param + ".content", text)) return error;
    if (*role == "assistant") text.insert(0, std::exchange(notes_, {}));
    Json message = {{"role", *role}, {"content", std::move(text)}};
    if (*role == "assistant" && !reasoning_.empty()) {
      message["reasoning_content"] = std::exchange(reasoning_, {});
    }
    messages_.push_back(std::move(message));
    return std::nullopt;
  }

  std::optional<ApiError> read_call(FieldReader& item, const std::string& param) {
    const auto id = item.string("call_id");
    const auto name = item.string("name");
    const auto arguments = item.string("arguments");
    if (item.error()) return item.error();
    if (!id) return missing_parameter(param + ".call_id");
    if (!name) return missing_parameter(param + ".name");
    // Calls of one turn are one message.
    if (messages_.empty() || messages_.back()["role"] != "assistant") {
      Json message = {{"role", "assistant"}, {"content", std::exchange(notes_, {})}};
      if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
      messages_.push_back(std::move(message));
    }
    messages_.back()["tool_calls"].push_back(
        {{"id", *id},
         {"type", "function"},
         {"function", {{"name", *name}, {"arguments", arguments.value_or("{}")}}}});
    return std::nullopt;
  }

  std::optional<ApiError> read_call_output(FieldReader& item, const std::string& param) {
    const auto id = item.string("call_id");
    const Json* output = item.find("output");
    if (item.error()) return item.error();
    if (!id) return missing_parameter(param + ".call_id");
    if (output == nullptr) return missing_parameter(param + ".output");
    std::string text;
    if (output->is_object()) {
      const Json type = output->value("type", Json("output"));
      text =
          fmt::format("[{}]", type.is_string() ? printable(type.get<std::string>(), 40) : "output");
    } else if (auto error = read_parts_of_item(*output, param + ".output", text,
                                               /*shows_types=*/true)) {
      return error;
    }
    messages_.push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(text)}});
    return std::nullopt;
  }

  std::optional<ApiError> read_reasoning(FieldReader& item, const std::string& param) {
    const Json* content = item.find("content");
    if (content == nullptr) return std::nullopt;
    return read_parts_of_item(*content, param + ".content", reasoning_);
  }

  Json& messages_;
  std::string reasoning_;  // of the assistant's next message, as these
  std::string notes_;
};

std::optional<ApiError> read_input(FieldReader& fields, Json& messages) {
  const Json* input = fields.find("input");
  if (input == nullptr) return missing_parameter("input");
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return std::nullopt;
  }
  if (!input->is_array()) return invalid_type("input", "a string or a list of items");
  if (input->empty() && messages.empty()) return invalid_value("input", "`input` is empty.");
  ItemReader items(messages);
  for (size_t i = 0; i < input->size(); ++i) {
    if (auto error = items.read((*input)[i], fmt::format("input[{}]", i))) return error;
  }
  return std::nullopt;
}

std::optional<ApiError> read_function(FieldReader& tool, const std::string& param, Json& function) {
  const std::string type = tool.string("type").value_or("");
  const auto name = tool.string("name");
  if (tool.error()) return tool.error();
  if (type.empty()) return missing_parameter(param + ".type");
  if (type != "function") return std::nullopt;  // run by OpenAI's servers
  if (!name) return missing_parameter(param + ".name");
  function["name"] = *name;
  for (const char* field : {"description", "parameters", "strict"}) {
    if (const Json* value = tool.find(field)) function[field] = *value;
  }
  return std::nullopt;
}

std::optional<ApiError> read_function_choice(FieldReader& fields, Json& chat) {
  const Json* value = fields.find("tool_choice");
  if (value == nullptr || value->is_string()) {
    if (value != nullptr) chat["tool_choice"] = *value;
    return std::nullopt;
  }
  if (!value->is_object()) return invalid_type("tool_choice", "a string or an object");
  FieldReader choice(*value, "tool_choice.");
  const auto name = choice.string("name");
  if (choice.string("type") == "allowed_tools") {
    chat["tool_choice"] = *value;
    return std::nullopt;
  }
  if (choice.string("type").value_or("") != "function" || !name) {
    return invalid_value("tool_choice",
                         "`tool_choice` must be none, auto, required or {\"type\": \"function\", "
                         "\"name\": ...}.");
  }
  chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
  return std::nullopt;
}

std::optional<ApiError> read_text_format(FieldReader& fields, Json& chat) {
  const Json* text = fields.object("text");
  if (fields.error()) return fields.error();
  if (text == nullptr) return std::nullopt;
  FieldReader inner(*text, "text.");
  const Json* format = inner.object("format");
  if (inner.error()) return inner.error();
  if (format == nullptr) return std::nullopt;
  FieldReader shape(*format, "text.format.");
  const std::string type = shape.string("type").value_or("");
  if (shape.error()) return shape.error();
  Json response_format = {{"type", type}};
  if (type == "json_schema") {
    for (const char* field : {"name", "schema", "strict", "description"}) {
      if (const Json* value = shape.find(field)) response_format["json_schema"][field] = *value;
    }
  }
  chat["response_format"] = std::move(response_format);
  return std::nullopt;
}

// Logprobs are on with a count of alternatives, or where `include` names them.
void read_asked_logprobs(FieldReader& fields, Json& chat) {
  const auto num_top = fields.integer("top_logprobs", 0);
  const auto included = fields.strings("include");
  const bool is_included =
      included && std::ranges::find(*included, "message.output_text.logprobs") != included->end();
  if (is_included || num_top.value_or(0) > 0) chat["logprobs"] = true;
  if (chat.value("logprobs", Json()) != true) chat.erase("top_logprobs");
}

// A response with logprobs is a tree of values in memory, unlike the answer of a chat.
std::optional<ApiError> check_num_logprobs(const Request& request) {
  if (!request.return_logprobs) return std::nullopt;
  const int64_t each = 1 + request.top_logprobs;
  if (request.stop.max_new_tokens <= kMaxResponseLogprobs / each) return std::nullopt;
  return invalid_value("max_output_tokens",
                       fmt::format("With `top_logprobs` {} an answer may have {} tokens; set "
                                   "`max_output_tokens` to no more than that.",
                                   request.top_logprobs, kMaxResponseLogprobs / each));
}

// 0.7f as 0.7, not as the nearest double's 0.699999988.
double shown(float number) { return std::strtod(fmt::format("{}", number).c_str(), nullptr); }

// The fields of the request that the answer repeats, with their defaults; `user` has none.
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
                   {"truncation", field("truncation", "disabled")}};
  if (Json user = field("user", nullptr); !user.is_null()) repeated["user"] = std::move(user);
  return repeated;
}

// A response is written whole again and again: in events, and for those who ask for it.
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

// The messages of the response that the client goes on from.
std::optional<ApiError> read_previous(FieldReader& fields, const CallContext& context,
                                      const std::string& holder, Json& messages) {
  const auto id = fields.string("previous_response_id");
  if (fields.error()) return fields.error();
  if (!id) return std::nullopt;
  const auto previous =
      context.responses == nullptr ? nullptr : context.responses->find(*id, holder);
  if (previous == nullptr) {
    return ApiError{.status = 404,
                    .code = "response_not_found",
                    .message = fmt::format("There is no response `{}`; responses are kept for an "
                                           "hour.",
                                           printable(*id, 128)),
                    .param = "previous_response_id"};
  }
  if (previous->is_running) {
    return invalid_value("previous_response_id",
                         fmt::format("The response `{}` still runs; go on from it once it has "
                                     "ended.",
                                     printable(*id, 128)));
  }
  messages = previous->messages;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<ApiAdapter> make_responses_adapter(ChatAnswerOptions options,
                                                   ResponsesAnswer answer) {
  return std::make_unique<ResponsesAdapter>(std::move(options), std::move(answer));
}

// `status` and `error` stand before all that a request says, which therefore cannot be taken for
// them.
std::string with_state(std::string_view body, std::string_view status, const Json& error) {
  const size_t begin = body.find("\"status\":");
  const size_t end = body.find(",\"incomplete_details\":");
  HEDDLE_CHECK(begin < end && end < body.size());
  return fmt::format(R"({}"status":"{}","error":{}{})", body.substr(0, begin), status,
                     dump_json(error), body.substr(end));
}

PrepareResult prepare_responses(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const auto instructions = fields.string("instructions");
  const auto max_tokens = fields.integer("max_output_tokens", 1);
  const bool store = fields.boolean("store").value_or(true);
  const bool is_background = fields.boolean("background").value_or(false);
  if (is_background && !store) {
    fields.fail(invalid_value("background",
                              "`background` needs `store`: the response is fetched "
                              "by its id."));
  }
  if (is_background && fields.boolean("stream").value_or(false)) {
    fields.fail(unsupported_parameter("background", "with `stream`; ask for one of them"));
  }
  ResponsesAnswer answer;
  if (context.head.key != nullptr) answer.holder = context.head.key->name;
  answer.messages = Json::array();
  if (auto error = read_previous(fields, context, answer.holder, answer.messages)) return *error;
  if (auto error = read_input(fields, answer.messages)) return *error;
  static_cast<void>(read_metadata(fields));
  if (fields.error()) return *fields.error();

  Json chat = object;
  for (const char* name :
       {"input", "instructions", "max_output_tokens", "tools", "tool_choice", "text", "reasoning",
        "previous_response_id", "store", "include", "truncation", "metadata", "background"}) {
    chat.erase(name);
  }
  read_asked_logprobs(fields, chat);
  Json messages = Json::array();
  if (instructions && !instructions->empty()) {
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  messages.insert(messages.end(), answer.messages.begin(), answer.messages.end());
  chat["messages"] = std::move(messages);
  if (max_tokens) chat["max_completion_tokens"] = *max_tokens;
  if (auto error = translate_tools(fields, read_function, chat)) return *error;
  if (auto error = read_function_choice(fields, chat)) return *error;
  if (auto error = read_text_format(fields, chat)) return *error;
  if (const Json* reasoning = fields.object("reasoning")) {
    FieldReader inner(*reasoning, "reasoning.");
    if (const Json* effort = inner.find("effort")) chat["reasoning_effort"] = *effort;
    if (const Json* budget = inner.find("max_tokens"))
      chat["reasoning"] = {{"max_tokens", *budget}};
  }
  if (fields.error()) return *fields.error();
  answer.request = repeated_fields(object, context.model);
  if (auto error = check_repeated(answer.request)) return *error;
  if (store) answer.keep_in = context.responses;
  object = nullptr;
  std::optional<BackgroundAnswer> background;
  answer.is_background = is_background;
  // A header may name several calls, but a response is fetched by its id alone.
  CallContext own = context;
  if (is_background && own.responses != nullptr && own.responses->contains(own.id)) {
    own.id = new_request_id("resp_");
  }
  PrepareResult result = prepare_chat_call(own, chat, [&](ChatAnswerOptions options) {
    if (is_background) {
      std::string running = dump_json(describe(options, answer, "in_progress", Json::array()));
      background = {.queued = with_state(running, "queued"),
                    .running = std::move(running),
                    .holder = answer.holder};
    }
    return make_responses_adapter(std::move(options), std::move(answer));
  });
  if (auto* const call = std::get_if<PreparedCall>(&result)) {
    if (auto error = check_num_logprobs(call->requests.front())) return *error;
    call->background = std::move(background);
  }
  return result;
}

}  // namespace heddle::server

// SPDX-License-Identifier: Apache-2.0
#include "server/api/responses/responses_answer.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "core/check.h"
#include "server/api/openai/delta_adapter.h"
#include "server/call/answer_log.h"
#include "server/call/custom_tools.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

Json describe(const ChatAnswerOptions& options, const ResponsesAnswer& answer, const char* status,
              Json output) {
  Json response = {
      {"id", options.id},       {"object", "response"},       {"created_at", options.created},
      {"status", status},       {"error", nullptr},           {"incomplete_details", nullptr},
      {"model", options.model}, {"output", std::move(output)}};
  response.update(answer.request);
  return response;
}

constexpr const char* kInProgress = "in_progress";
constexpr const char* kCompleted = "completed";
constexpr const char* kIncomplete = "incomplete";

// Writes the events of a response with their numbers.
class EventWriter {
 public:
  // Events with numbers up to `after` are counted but not written.
  explicit EventWriter(int64_t after) : after_(after) {}

  void emit(const char* type, Json fields, std::string& out) {
    const int64_t number = num_events_++;
    if (number <= after_) return;
    Json event = {{"type", type}, {"sequence_number", number}};
    event.update(fields);
    append_typed_event(event, out);
  }

  void begin(const Json& response, std::string& out) {
    emit("response.created", {{"response", response}}, out);
    emit("response.in_progress", {{"response", response}}, out);
  }

  void finish(Json response, std::string& out) {
    const Json status = response.at("status");
    const char* const type = status == kCompleted ? "response.completed"
                             : status == "failed" ? "response.failed"
                                                  : "response.incomplete";
    emit(type, {{"response", std::move(response)}}, out);
  }

 private:
  const int64_t after_;
  int64_t num_events_ = 0;
};

// A call in terms of the client's tool.
struct ShownCall {
  std::string id;
  std::string name;
  std::string space;
  bool is_custom = false;
};

// Builds the items of a response from deltas, and writes the events for them.
class ItemWriter {
 public:
  // Null `events`: only the items are built.
  ItemWriter(std::string response_id, EventWriter* events)
      : response_id_(std::move(response_id)), events_(events) {}

  void add_reasoning(std::string_view more, std::string& out) {
    open(Item::kReasoning, out);
    text_ += more;
    cut(more, 0);
    emit("response.reasoning_text.delta", [&] { return part_fields({{"delta", more}}); }, out);
  }

  // Appends text to the open item. `logprobs` is a list for the tokens of the text.
  void add_text(std::string_view more, Json logprobs, std::string& out) {
    open(Item::kMessage, out);
    text_ += more;
    cut(more, logprobs.size());
    emit(
        "response.output_text.delta",
        [&] { return part_fields({{"delta", more}, {"logprobs", logprobs}}); }, out);
    for (Json& entry : logprobs) logprobs_.push_back(std::move(entry));
  }

  void begin_call(ShownCall call, std::string& out) {
    close(out);
    item_ = Item::kCall;
    call_ = std::move(call);
    emit_added(call_item(kInProgress), out);
  }

  // Appends to a call's arguments, or for a custom tool to its input.
  void add_to_call(std::string_view more, std::string& out) {
    if (more.empty()) return;
    text_ += more;
    cut(more, 0);
    const char* const type = call_.is_custom ? "response.custom_tool_call_input.delta"
                                             : "response.function_call_arguments.delta";
    emit(type, [&] { return item_fields({{"delta", more}}); }, out);
  }

  // Completes the open call's text to `whole`, of which add_to_call() may have written the
  // beginning.
  void settle_call(std::string_view whole, std::string& out) {
    if (whole.starts_with(text_)) {
      add_to_call(std::string(whole.substr(text_.size())), out);
    } else {
      text_ = whole;
    }
  }

  // Closes the open item. `complete` is false if it was cut off.
  void close(std::string& out, bool complete = true) {
    if (item_ == Item::kNone) return;
    const char* status = complete ? kCompleted : kIncomplete;
    Json done;
    if (item_ == Item::kCall) {
      const char* const type = call_.is_custom ? "response.custom_tool_call_input.done"
                                               : "response.function_call_arguments.done";
      emit(
          type,
          [&] {
            return call_.is_custom ? item_fields({{"input", text_}})
                                   : item_fields({{"name", call_.name}, {"arguments", text_}});
          },
          out);
      done = call_item(status);
    } else {
      const bool is_message = item_ == Item::kMessage;
      const Json part = text_part(text_, logprobs_);
      emit(
          is_message ? "response.output_text.done" : "response.reasoning_text.done",
          [&] {
            Json fields = part_fields({{"text", text_}});
            if (is_message) fields["logprobs"] = logprobs_;
            return fields;
          },
          out);
      emit("response.content_part.done", [&] { return part_fields({{"part", part}}); }, out);
      done = text_item(status, Json::array({part}));
    }
    emit(
        "response.output_item.done",
        [&] { return Json{{"output_index", output_.size()}, {"item", done}}; }, out);
    output_.push_back(std::move(done));
    text_.clear();
    logprobs_ = Json::array();
    item_ = Item::kNone;
  }

  // The items that are complete.
  [[nodiscard]] const Json& output() const { return output_; }

  [[nodiscard]] Json take_output() { return std::exchange(output_, Json::array()); }

  [[nodiscard]] std::vector<StoredResponse::Cut> take_cuts() { return std::exchange(cuts_, {}); }

  // The call that is open.
  [[nodiscard]] const ShownCall& call() const { return call_; }

 private:
  enum class Item { kNone, kReasoning, kMessage, kCall };

  template <typename Fields>
  void emit(const char* type, const Fields& fields, std::string& out) {
    if (events_ != nullptr) events_->emit(type, fields(), out);
  }

  void emit_added(const Json& item, std::string& out) {
    emit(
        "response.output_item.added",
        [&] { return Json{{"output_index", output_.size()}, {"item", item}}; }, out);
  }

  void cut(std::string_view more, size_t num_logprobs) {
    if (events_ == nullptr) return;
    cuts_.push_back({.num_bytes = static_cast<uint32_t>(more.size()),
                     .num_logprobs = static_cast<uint32_t>(num_logprobs)});
  }

  [[nodiscard]] std::string item_id() const {
    const char* const kind = item_ == Item::kReasoning ? "rs"
                             : item_ == Item::kMessage ? "msg"
                             : call_.is_custom         ? "ctc"
                                                       : "fc";
    return output_item_id(kind, response_id_, output_.size());
  }

  [[nodiscard]] Json item_fields(Json more) const {
    Json fields = {{"item_id", item_id()}, {"output_index", output_.size()}};
    fields.update(more);
    return fields;
  }

  [[nodiscard]] Json part_fields(Json more) const {
    Json fields = item_fields({{"content_index", 0}});
    fields.update(more);
    return fields;
  }

  // The content part of the open item, which is a message or reasoning.
  [[nodiscard]] Json text_part(const std::string& text, Json logprobs) const {
    if (item_ == Item::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", std::move(logprobs)}};
  }

  [[nodiscard]] Json text_item(const char* status, Json content) const {
    if (item_ == Item::kReasoning) {
      return {{"type", "reasoning"},
              {"id", item_id()},
              {"summary", Json::array()},
              {"content", std::move(content)},
              {"status", status}};
    }
    return {{"type", "message"},
            {"id", item_id()},
            {"role", "assistant"},
            {"status", status},
            {"content", std::move(content)}};
  }

  [[nodiscard]] Json call_item(const char* status) const {
    Json item = {{"type", call_.is_custom ? "custom_tool_call" : "function_call"},
                 {"id", item_id()},
                 {"call_id", call_.id},
                 {"name", call_.name}};
    if (!call_.space.empty()) item["namespace"] = call_.space;
    item[call_.is_custom ? "input" : "arguments"] = text_;
    item["status"] = status;
    return item;
  }

  void open(Item kind, std::string& out) {
    if (item_ == kind) return;
    close(out);
    item_ = kind;
    emit_added(text_item(kInProgress, Json::array()), out);
    emit(
        "response.content_part.added",
        [&] { return part_fields({{"part", text_part("", Json::array())}}); }, out);
  }

  const std::string response_id_;
  EventWriter* const events_;
  Json output_ = Json::array();
  Item item_ = Item::kNone;        // kind of the open item
  std::string text_;               // text of the open item
  Json logprobs_ = Json::array();  // log probabilities of the open item
  ShownCall call_;
  std::vector<StoredResponse::Cut> cuts_;
};

class ResponsesAdapter final : public DeltaAdapter {
 public:
  ResponsesAdapter(ChatAnswerOptions options, ResponsesAnswer answer)
      : DeltaAdapter(std::move(options)),
        answer_of_(std::move(answer)),
        items_(this->options().id, this->options().streaming.stream ? &events_ : nullptr) {}

  JsonPieces body() override {
    add_parts();
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
    if (answer_of_.is_background) {  // other failed responses are not stored
      written_ = dump_json(response);
      keep();
    }
    events_.finish(std::move(response), out);
  }

 protected:
  void begin(std::string& out) override { events_.begin(response_json(kInProgress), out); }

  void deliver(const parsers::AnswerDelta& delta, std::string& out) override {
    if (const auto* const more = std::get_if<parsers::ReasoningDelta>(&delta)) {
      items_.add_reasoning(more->text, out);
    } else if (const auto* const text = std::get_if<parsers::ContentDelta>(&delta)) {
      items_.add_text(text->text, next_logprobs(content_logprobs().size()), out);
    } else if (const auto* const call = std::get_if<parsers::ToolCallBegin>(&delta)) {
      items_.begin_call(shown_call(call->id, call->name), out);
      arguments_.clear();
      input_ = {};
    } else if (const auto* const arguments = std::get_if<parsers::ArgumentsDelta>(&delta)) {
      if (items_.call().is_custom) {
        arguments_ += arguments->json;
        items_.add_to_call(input_.add(arguments->json), out);
      } else {
        items_.add_to_call(arguments->json, out);
      }
    } else {
      const bool is_complete = std::get<parsers::ToolCallEnd>(delta).complete;
      if (items_.call().is_custom && is_complete) {
        items_.settle_call(custom_input(arguments_), out);
      }
      items_.close(out, is_complete);
    }
  }

  void finish(std::string& out) override {
    items_.close(out, finished().reason == FinishReason::kStop);
    Json response = complete_response();
    written_ = dump_json(response);
    keep();
    events_.finish(std::move(response), out);
  }

 private:
  [[nodiscard]] ShownCall shown_call(const std::string& id, const std::string& function) const {
    const ResponseTools::Tool* const tool = answer_of_.tools.find(function);
    if (tool == nullptr) return {.id = id, .name = function, .space = {}};
    return {.id = id, .name = tool->name, .space = tool->space, .is_custom = tool->is_custom};
  }

  // Log probabilities of the content's tokens before index `end` that no event has shown; empty if
  // none were requested.
  [[nodiscard]] Json next_logprobs(size_t end) {
    std::string list = "[";
    for (size_t i = num_shown_; i < end; ++i) {
      if (i > num_shown_) list += ',';
      append_token_logprob(content_logprobs(), i, *options().codec, list);
    }
    num_shown_ = end;
    return Json::parse(list + "]");
  }

  // Adds the parts of an answer that is not streamed.
  void add_parts() {
    std::string nowhere;
    for (const AnswerPart& part : parts()) {
      switch (part.kind) {
        case AnswerPart::Kind::kReasoning:
          items_.add_reasoning(part.text, nowhere);
          break;
        case AnswerPart::Kind::kContent:
          items_.add_text(part.text, next_logprobs(part.logprobs_end), nowhere);
          break;
        case AnswerPart::Kind::kCall: {
          const ShownCall call = shown_call(part.call.id, part.call.name);
          items_.begin_call(call, nowhere);
          items_.add_to_call(call.is_custom ? custom_input(part.call) : part.call.arguments,
                             nowhere);
          items_.close(nowhere, part.call.complete);
          break;
        }
      }
    }
    items_.close(nowhere, finished().reason == FinishReason::kStop);
  }

  [[nodiscard]] Json response_json(const char* status) const {
    return describe(options(), answer_of_, status, items_.output());
  }

  [[nodiscard]] Json complete_response() const {
    const FinishReason reason = finished().reason;
    Json response = response_json(reason == FinishReason::kStop     ? kCompleted
                                  : reason == FinishReason::kLength ? kIncomplete
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

  // Stores the response. The items are stored as sent, so that continuing it gives the same prompt
  // as sending the items again.
  void keep() {
    if (answer_of_.keep_in == nullptr) return;
    Json output = items_.take_output();
    for (Json& item : output) {
      if (item["type"] != "message") continue;
      // Removed, because prompts do not contain log probabilities.
      for (Json& part : item["content"]) part["logprobs"] = Json::array();
    }
    StoredResponse response{.body = written_,
                            .input = std::move(answer_of_.input),
                            .output = std::move(output),
                            .input_bytes = answer_of_.input_bytes,
                            .holder = answer_of_.holder,
                            .cuts = items_.take_cuts()};
    const auto store = std::exchange(answer_of_.keep_in, nullptr);
    if (answer_of_.is_background) {
      store->replace(options().id, std::move(response));
    } else {
      store->put(options().id, std::move(response));
    }
    answer_of_.claim.reset();
  }

  ResponsesAnswer answer_of_;
  EventWriter events_{/*after=*/-1};
  ItemWriter items_;
  std::string arguments_;    // arguments of an open call of a custom tool
  CustomInputReader input_;  // extracts the tool's input from these arguments
  size_t num_shown_ = 0;     // number of content_logprobs() shown so far
  std::string written_;      // the JSON of the whole response
};

// The text of an item, and the log probabilities of its tokens.
std::pair<std::string, Json> text_with_logprobs(const Json& item) {
  const Json& type = item.at("type");
  if (type == "custom_tool_call") return {item.at("input").get<std::string>(), Json::array()};
  if (type == "function_call") return {item.at("arguments").get<std::string>(), Json::array()};
  const Json& part = item.at("content").at(0);
  return {part.at("text").get<std::string>(), part.value("logprobs", Json::array())};
}

// Writes an item of a stored response with its original deltas, whose sizes are removed from
// `cuts`.
void replay(const Json& item, std::span<const StoredResponse::Cut>& cuts, ItemWriter& items,
            std::string& out) {
  const Json& type = item.at("type");
  const auto [text, logprobs] = text_with_logprobs(item);
  const bool is_call = type == "function_call" || type == "custom_tool_call";
  if (is_call) {
    items.begin_call({.id = item.at("call_id").get<std::string>(),
                      .name = item.at("name").get<std::string>(),
                      .space = item.value("namespace", std::string()),
                      .is_custom = type == "custom_tool_call"},
                     out);
  }
  std::string_view rest = text;
  size_t logprobs_begin = 0;
  while (!rest.empty()) {
    const StoredResponse::Cut cut =
        cuts.empty() ? StoredResponse::Cut{.num_bytes = static_cast<uint32_t>(rest.size()),
                                           .num_logprobs = static_cast<uint32_t>(logprobs.size())}
                     : cuts.front();
    if (!cuts.empty()) cuts = cuts.subspan(1);
    const std::string_view more = rest.substr(0, cut.num_bytes);
    rest.remove_prefix(more.size());
    if (is_call) {
      items.add_to_call(more, out);
    } else if (type == "reasoning") {
      items.add_reasoning(more, out);
    } else {
      const size_t end = std::min(logprobs_begin + cut.num_logprobs, logprobs.size());
      Json shown = Json::array();
      for (; logprobs_begin < end; ++logprobs_begin) shown.push_back(logprobs[logprobs_begin]);
      items.add_text(more, std::move(shown), out);
    }
  }
  items.close(out, item.at("status") == kCompleted);
}

}  // namespace

std::unique_ptr<ApiAdapter> make_responses_adapter(ChatAnswerOptions options,
                                                   ResponsesAnswer answer) {
  return std::make_unique<ResponsesAdapter>(std::move(options), std::move(answer));
}

std::string running_response(const ChatAnswerOptions& options, const ResponsesAnswer& answer) {
  return dump_json(describe(options, answer, "in_progress", Json::array()));
}

// Finds `status` and `error` by their first occurrence: they precede all texts of the request,
// which therefore cannot be mistaken for them.
std::string with_state(std::string_view body, std::string_view status, const Json& error) {
  const size_t begin = body.find("\"status\":");
  const size_t end = body.find(",\"incomplete_details\":");
  HEDDLE_CHECK(begin < end && end < body.size());
  return fmt::format(R"({}"status":"{}","error":{}{})", body.substr(0, begin), status,
                     dump_json(error), body.substr(end));
}

std::string response_events(const StoredResponse& response, int64_t starting_after) {
  Json whole = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  HEDDLE_CHECK(whole.is_object());
  const Json output = std::exchange(whole["output"], Json::array());
  Json running = whole;
  running["status"] = kInProgress;
  running["error"] = nullptr;
  running["incomplete_details"] = nullptr;
  running.erase("usage");
  std::string out;
  EventWriter events(starting_after);
  events.begin(running, out);
  if (response.is_running) return out;
  ItemWriter items(whole.at("id").get<std::string>(), &events);
  std::span<const StoredResponse::Cut> cuts(response.cuts);
  for (const Json& item : output) replay(item, cuts, items, out);
  whole["output"] = output;
  events.finish(std::move(whole), out);
  return out;
}

}  // namespace heddle::server

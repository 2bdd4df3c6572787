// SPDX-License-Identifier: Apache-2.0
#include "server/responses_answer.h"

#include <cstdint>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "core/check.h"
#include "server/answer_log.h"
#include "server/delta_adapter.h"
#include "server/json_text.h"

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

  [[nodiscard]] std::string item_id(const char* kind) const {
    return output_item_id(kind, options().id, output_.size());
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

  // The items themselves: who goes on from them gets the prompt of who sends them again.
  void keep() {
    if (answer_of_.keep_in == nullptr) return;
    for (Json& item : output_) {
      if (item["type"] != "message") continue;
      for (Json& part : item["content"]) part["logprobs"] = Json::array();  // no prompt shows them
    }
    StoredResponse response{.body = written_,
                            .input = std::move(answer_of_.input),
                            .output = std::move(output_),
                            .input_bytes = answer_of_.input_bytes,
                            .holder = answer_of_.holder};
    const auto store = std::exchange(answer_of_.keep_in, nullptr);
    if (answer_of_.is_background) {
      store->replace(options().id, std::move(response));
    } else {
      store->put(options().id, std::move(response));
    }
    answer_of_.claim.reset();
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

}  // namespace

std::unique_ptr<ApiAdapter> make_responses_adapter(ChatAnswerOptions options,
                                                   ResponsesAnswer answer) {
  return std::make_unique<ResponsesAdapter>(std::move(options), std::move(answer));
}

std::string running_response(const ChatAnswerOptions& options, const ResponsesAnswer& answer) {
  return dump_json(describe(options, answer, "in_progress", Json::array()));
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

}  // namespace heddle::server

// SPDX-License-Identifier: Apache-2.0
#include "server/api/openai/chat_answer.h"

#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parsers/answer_delta.h"
#include "server/call/answer_log.h"
#include "server/call/custom_tools.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using parsers::AnswerDelta;

// Converts the arguments of calls of custom tools to texts while they arrive.
class CustomCalls {
 public:
  // `names` outlives the object.
  explicit CustomCalls(const std::set<std::string, std::less<>>* names) : names_(names) {}

  // Whether the call that began last is one of a custom tool.
  [[nodiscard]] bool is_open() const { return is_open_; }

  // Replaces the arguments in a delta by text of the tool's input. Returns false if there is
  // nothing to show.
  bool show(AnswerDelta& delta) {
    if (const auto* const call = std::get_if<parsers::ToolCallBegin>(&delta)) {
      is_open_ = names_->contains(call->name);
      reader_ = {};
      arguments_.clear();
      shown_.clear();
      return true;
    }
    if (auto* const more = std::get_if<parsers::ArgumentsDelta>(&delta)) {
      if (!is_open_) return true;
      arguments_ += more->json;
      more->json = reader_.add(more->json);
      shown_ += more->json;
      return !more->json.empty();
    }
    const auto* const end = std::get_if<parsers::ToolCallEnd>(&delta);
    if (end == nullptr) return true;
    if (!is_open_ || !end->complete) return false;
    // Arguments in another form than {"input": TEXT} are shown unchanged.
    const std::string whole = custom_input(arguments_);
    if (!whole.starts_with(shown_) || whole.size() == shown_.size()) return false;
    delta = parsers::ArgumentsDelta{end->index, whole.substr(shown_.size())};
    return true;
  }

 private:
  const std::set<std::string, std::less<>>* names_;
  bool is_open_ = false;
  CustomInputReader reader_;
  std::string arguments_;
  std::string shown_;
};

class ChatAdapter final : public ApiAdapter {
 public:
  explicit ChatAdapter(ChatAnswerOptions options)
      : options_(std::move(options)),
        logs_(options_.num_choices),
        answers_(options_.streaming.stream ? 0 : options_.num_choices),
        started_(options_.num_choices, false) {
    customs_.assign(options_.num_choices, CustomCalls(&options_.custom_tools));
    streams_.reserve(options_.num_choices);
    for (size_t i = 0; i < options_.num_choices; ++i) {
      AnswerStreamOptions stream = options_.stream;
      stream.parser.id_seed = fmt::format("{}#{}", options_.id, i);
      streams_.emplace_back(std::move(stream));
    }
    if (!options_.streaming.stream) return;
    JsonPieces begin;
    begin.around("data: ");
    begin_answer(begin, "chat.completion.chunk");
    begin.key("choices").begin_list().begin_object().key("index").write_all(chunk_begin_);
  }

  void set_weight_version(std::string name) override { options_.weight_version = std::move(name); }

  void event(size_t choice, const RequestEvent& event, std::string& out) override {
    ChoiceLog& log = logs_[choice];
    log.add(event);
    log.text.clear();  // the deltas contain the same text
    parsers::AnswerDeltas deltas = streams_[choice].add(event);
    log.counts.reasoning_tokens = streams_[choice].reasoning_tokens();
    if (!options_.streaming.stream) {
      for (AnswerDelta& delta : deltas) answers_[choice].add(std::move(delta));
      return;
    }
    if (!started_[choice]) append_chunk(choice, Role{}, out);
    started_[choice] = true;
    for (AnswerDelta& delta : deltas) {
      if (!customs_[choice].show(delta)) continue;
      append_chunk(choice, &delta, out);
      log.logprobs.clear();  // only the first chunk of an event contains them
      log.tokens.clear();
    }
    if (shows_logprobs(log) || shows_tokens(log)) append_chunk(choice, Rest{}, out);
    if (log.finish) append_chunk(choice, *log.finish, out);
    log.clear();
  }

  void end(std::string& out) override {
    if (options_.streaming.include_usage) {
      JsonPieces chunk;
      chunk.around("data: ");
      begin_answer(chunk, "chat.completion.chunk");
      chunk.key("choices").begin_list().end_list().key("usage").value(usage());
      chunk.end_object().around("\n\n").write_all(out);
    }
    out += kSseDone;
  }

  JsonPieces body() override {
    JsonPieces body;
    begin_answer(body, "chat.completion");
    if (!options_.system_fingerprint.empty()) {
      body.key("system_fingerprint").value(options_.system_fingerprint);
    }
    body.key("choices").begin_list();
    for (size_t i = 0; i < logs_.size(); ++i) {
      const ChoiceLog& log = logs_[i];
      const Finish finish = log.finish.value_or(Finish{});
      body.begin_object().key("index").value(i);
      body.key("message");
      add_message(answers_[i], body);
      body.key("logprobs");
      options_.logprobs ? add_logprobs(log, body) : body.value(nullptr);
      body.key("finish_reason").value(streams_[i].finish_name(finish));
      body.key("matched_stop").value(matched_stop(finish));
      if (options_.return_token_ids) body.key("token_ids").integers(log.tokens);
      body.end_object();
    }
    body.end_list().key("usage").value(usage());
    body.key("metadata").value({{"weight_version", options_.weight_version}});
    if (options_.prompt_token_ids)
      body.key("prompt_token_ids").integers(*options_.prompt_token_ids);
    return std::move(body.end_object());
  }

 private:
  // The kinds of chunks. A choice is streamed as its role, then its deltas, then its end. An
  // event's data other than text is sent with its first delta, or alone as Rest.
  struct Role {};

  struct Rest {};

  using Chunk = std::variant<Role, const AnswerDelta*, Rest, Finish>;

  // Appends one chunk. The I/O thread writes one for every token, so it is joined from texts, most
  // of which are built once.
  void append_chunk(size_t index, const Chunk& kind, std::string& out) const {
    const ChoiceLog& log = logs_[index];
    const bool is_role = std::holds_alternative<Role>(kind);
    const auto* const finish = std::get_if<Finish>(&kind);
    const bool content = !is_role && finish == nullptr;
    out += chunk_begin_;
    out += std::to_string(index);
    out += ",\"delta\":{";
    if (is_role) out += "\"role\":\"assistant\",\"content\":\"\"";
    if (const auto* const delta = std::get_if<const AnswerDelta*>(&kind))
      append_delta(**delta, customs_[index].is_open(), out);
    out += "},\"logprobs\":";
    if (content && shows_logprobs(log)) {
      JsonPieces logprobs;
      add_logprobs(log, logprobs).write_all(out);
    } else {
      out += "null";
    }
    out += ",\"finish_reason\":";
    if (finish != nullptr) {
      append_json_string(streams_[index].finish_name(*finish), out);
      out += ",\"matched_stop\":";
      out += dump_json(matched_stop(*finish));
    } else {
      out += "null";
    }
    if (content && shows_tokens(log)) append_token_ids(",\"token_ids\":", log.tokens, out);
    out += "}]";
    if (is_role && index == 0 && options_.prompt_token_ids) {
      append_token_ids(",\"prompt_token_ids\":", *options_.prompt_token_ids, out);
    }
    if (options_.streaming.continuous_usage) {
      out += ",\"usage\":";
      out += dump_json(usage());
    } else if (options_.streaming.include_usage) {
      out += ",\"usage\":null";
    }
    out += "}\n\n";
  }

  static void append_token_ids(std::string_view key, std::span<const TokenId> ids,
                               std::string& out) {
    out += key;
    JsonPieces list;
    list.integers(ids).write_all(out);
  }

  // Appends a delta with exactly one key, or two if reasoning is shown under both names.
  void append_delta(const AnswerDelta& delta, bool is_custom, std::string& out) const {
    if (const auto* const content = std::get_if<parsers::ContentDelta>(&delta)) {
      out += "\"content\":";
      append_json_string(content->text, out);
    } else if (const auto* const reasoning = std::get_if<parsers::ReasoningDelta>(&delta)) {
      const ReasoningField field = options_.reasoning_field;
      if (field != ReasoningField::kReasoning) {
        out += "\"reasoning_content\":";
        append_json_string(reasoning->text, out);
      }
      if (field == ReasoningField::kBoth) out += ',';
      if (field != ReasoningField::kReasoningContent) {
        out += "\"reasoning\":";
        append_json_string(reasoning->text, out);
      }
    } else if (const auto* const call = std::get_if<parsers::ToolCallBegin>(&delta)) {
      fmt::format_to(std::back_inserter(out),
                     "\"tool_calls\":[{{\"index\":{},\"id\":", call->index);
      append_json_string(call->id, out);
      out += is_custom ? ",\"type\":\"custom\",\"custom\":{\"name\":"
                       : ",\"type\":\"function\",\"function\":{\"name\":";
      append_json_string(call->name, out);
      out += is_custom ? ",\"input\":\"\"}}]" : ",\"arguments\":\"\"}}]";
    } else if (const auto* const arguments = std::get_if<parsers::ArgumentsDelta>(&delta)) {
      fmt::format_to(std::back_inserter(out), "\"tool_calls\":[{{\"index\":{},", arguments->index);
      out += is_custom ? "\"custom\":{\"input\":" : "\"function\":{\"arguments\":";
      append_json_string(arguments->json, out);
      out += "}}]";
    }
  }

  void add_reasoning(std::string_view text, JsonPieces& json) const {
    const ReasoningField field = options_.reasoning_field;
    if (field != ReasoningField::kReasoning) add_text_or_null("reasoning_content", text, json);
    if (field != ReasoningField::kReasoningContent) add_text_or_null("reasoning", text, json);
  }

  static void add_text_or_null(std::string_view name, std::string_view text, JsonPieces& json) {
    json.key(name);
    text.empty() ? json.value(nullptr) : json.text(text);
  }

  // Adds the message. Its content is null if there are calls and no text; without calls it has no
  // list of them.
  void add_message(const parsers::AssembledAnswer& answer, JsonPieces& body) const {
    body.begin_object().key("role").value("assistant").key("content");
    if (answer.content.empty() && !answer.calls.empty()) {
      body.value(nullptr);
    } else {
      body.text(answer.content);
    }
    body.key("refusal").value(nullptr);  // OpenAI's schema requires this field
    add_reasoning(answer.reasoning, body);
    if (!answer.calls.empty()) {
      body.key("tool_calls").begin_list();
      for (const parsers::ToolCall& call : answer.calls) {
        const bool is_custom = options_.custom_tools.contains(call.name);
        const char* const type = is_custom ? "custom" : "function";
        body.begin_object().key("id").text(call.id).key("type").value(type);
        body.key(type).begin_object().key("name").text(call.name);
        if (is_custom) {
          body.key("input").value(custom_input(call));
        } else {
          body.key("arguments").text(call.arguments);
        }
        body.end_object().end_object();
      }
      body.end_list();
    }
    body.end_object();
  }

  // Writes the beginning of an answer; leaves the JSON object open.
  void begin_answer(JsonPieces& answer, std::string_view object) const {
    answer.begin_object().key("id").value(options_.id).key("object").value(object);
    answer.key("created").value(options_.created).key("model").value(options_.model);
  }

  [[nodiscard]] bool shows_logprobs(const ChoiceLog& log) const {
    return options_.logprobs && log.logprobs.size() > 0;
  }

  [[nodiscard]] bool shows_tokens(const ChoiceLog& log) const {
    return options_.return_token_ids && !log.tokens.empty();
  }

  [[nodiscard]] nlohmann::ordered_json usage() const {
    return usage_json(logs_, logs_.size(), options_.cache_details);
  }

  // Adds {"content": [{"token": .., "logprob": .., "bytes": [..], "top_logprobs": [..]}, ..],
  // "refusal": null}.
  JsonPieces& add_logprobs(const ChoiceLog& log, JsonPieces& answer) const {
    const auto write_entry = [this, &log](size_t index, std::string& out) {
      append_token_logprob(log.logprobs, index, *options_.codec, out);
    };
    answer.begin_object().key("content").list(log.logprobs.size(), write_entry);
    return answer.key("refusal").value(nullptr).end_object();
  }

  ChatAnswerOptions options_;
  std::vector<ChoiceLog> logs_;
  std::vector<AnswerStream> streams_;  // parsers of the answers, one per choice
  std::vector<CustomCalls> customs_;   // custom tools' calls, one per choice
  // One per choice, for answers that are not streamed.
  std::vector<parsers::AssembledAnswer> answers_;
  std::vector<bool> started_;  // for each choice: its role was streamed
  std::string chunk_begin_;    // beginning of every chunk of the stream, up to the choice's index
};

}  // namespace

std::unique_ptr<ApiAdapter> make_chat_adapter(ChatAnswerOptions options) {
  return std::make_unique<ChatAdapter>(std::move(options));
}

}  // namespace heddle::server

// SPDX-License-Identifier: Apache-2.0
#include "server/chat_completions.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parsers/answer_delta.h"
#include "server/answer_form.h"
#include "server/answer_log.h"
#include "server/call_fields.h"
#include "server/chat_messages.h"
#include "server/json_text.h"
#include "server/prompt_list.h"
#include "server/sampling_fields.h"
#include "server/stop_patterns.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;
using parsers::AnswerDelta;
using parsers::ReasoningFormat;

// ---- The answer ----

class ChatAdapter final : public ApiAdapter {
 public:
  explicit ChatAdapter(ChatAnswerOptions options)
      : options_(std::move(options)),
        logs_(options_.num_choices),
        answers_(options_.streaming.stream ? 0 : options_.num_choices),
        started_(options_.num_choices, false) {
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
    log.text.clear();  // its deltas say the same
    parsers::AnswerDeltas deltas = streams_[choice].add(event);
    log.counts.reasoning_tokens = streams_[choice].reasoning_tokens();
    if (!options_.streaming.stream) {
      for (AnswerDelta& delta : deltas) answers_[choice].add(std::move(delta));
      return;
    }
    if (!started_[choice]) append_chunk(choice, Role{}, out);
    started_[choice] = true;
    for (const AnswerDelta& delta : deltas) {
      if (std::holds_alternative<parsers::ToolCallEnd>(delta)) continue;
      append_chunk(choice, &delta, out);
      log.logprobs.clear();  // the first chunk of an event has them
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
  // A choice is streamed as its role, then its deltas, then its end. An event's data beside its
  // text go with its first delta, or as the rest.
  struct Role {};

  struct Rest {};

  using Chunk = std::variant<Role, const AnswerDelta*, Rest, Finish>;

  // The I/O thread writes a chunk for every token: it is put together of texts, most of which are
  // made once.
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
      append_delta(**delta, out);
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

  // Exactly one key, but for reasoning under both names.
  void append_delta(const AnswerDelta& delta, std::string& out) const {
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
      out += ",\"type\":\"function\",\"function\":{\"name\":";
      append_json_string(call->name, out);
      out += ",\"arguments\":\"\"}}]";
    } else if (const auto* const arguments = std::get_if<parsers::ArgumentsDelta>(&delta)) {
      fmt::format_to(
          std::back_inserter(out),
          "\"tool_calls\":[{{\"index\":{},\"function\":{{\"arguments\":", arguments->index);
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

  // Content is null where there are calls and no text; without calls there is no list of them.
  void add_message(const parsers::AssembledAnswer& answer, JsonPieces& body) const {
    body.begin_object().key("role").value("assistant").key("content");
    if (answer.content.empty() && !answer.calls.empty()) {
      body.value(nullptr);
    } else {
      body.text(answer.content);
    }
    body.key("refusal").value(nullptr);  // OpenAI's schema requires it
    add_reasoning(answer.reasoning, body);
    if (!answer.calls.empty()) {
      body.key("tool_calls").begin_list();
      for (const parsers::ToolCall& call : answer.calls) {
        body.begin_object().key("id").text(call.id).key("type").value("function");
        body.key("function").begin_object().key("name").text(call.name);
        body.key("arguments").text(call.arguments).end_object().end_object();
      }
      body.end_list();
    }
    body.end_object();
  }

  // The object is left open.
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

  // {"content": [{"token": .., "logprob": .., "bytes": [..], "top_logprobs": [..]}, ..],
  //  "refusal": null}
  JsonPieces& add_logprobs(const ChoiceLog& log, JsonPieces& answer) const {
    const auto write_entry = [this, &log](size_t index, std::string& out) {
      append_token_logprob(log.logprobs, index, *options_.codec, out);
    };
    answer.begin_object().key("content").list(log.logprobs.size(), write_entry);
    return answer.key("refusal").value(nullptr).end_object();
  }

  ChatAnswerOptions options_;
  std::vector<ChoiceLog> logs_;
  std::vector<AnswerStream> streams_;              // per choice
  std::vector<parsers::AssembledAnswer> answers_;  // per choice, of an answer sent as a whole
  std::vector<bool> started_;                      // per choice: its role was streamed
  std::string chunk_begin_;                        // of a stream: all chunks up to their index
};

// ---- The request ----

void read_effort(FieldReader& fields, std::string_view name, Json& variables) {
  const Json* effort = fields.find(name);
  if (effort == nullptr) return;
  const bool known_word =
      effort->is_string() &&
      (*effort == "none" || *effort == "minimal" || *effort == "low" || *effort == "medium" ||
       *effort == "high" || *effort == "xhigh" || *effort == "max");
  const bool is_fraction =
      effort->is_number() && effort->get<double>() >= 0 && effort->get<double>() <= 0.99;
  if (!known_word && !is_fraction) {
    fields.fail(
        invalid_value(fields.name_of(name),
                      fmt::format("`{}` must be none, minimal, low, medium, high, xhigh, max "
                                  "or a number from 0 to 0.99.",
                                  fields.name_of(name))));
    return;
  }
  const bool thinking = *effort != "none";
  variables.emplace("thinking", Json(thinking));  // emplace: what the caller set stays
  variables.emplace("enable_thinking", Json(thinking));
  variables.emplace("reasoning_effort", Json(*effort));
}

// The variables that the template sees beside messages and tools.
Json read_template_variables(FieldReader& fields) {
  Json variables = Json::object();
  if (const Json* extra = fields.object("chat_template_kwargs")) variables = *extra;
  read_effort(fields, "reasoning_effort", variables);
  if (const Json* reasoning = fields.object("reasoning")) {
    FieldReader inner(*reasoning, "reasoning.");
    read_effort(inner, "effort", variables);
    if (const auto enabled = inner.boolean("enabled")) {
      variables.emplace("thinking", Json(*enabled));
      variables.emplace("enable_thinking", Json(*enabled));
    }
    if (inner.error()) fields.fail(*inner.error());
  }
  return variables;
}

void refuse_unserved_chat_fields(FieldReader& fields) {
  refuse_unserved_features(fields);
  if (fields.find("functions") != nullptr || fields.find("function_call") != nullptr) {
    fields.fail(
        unsupported_parameter(fields.find("functions") != nullptr ? "functions" : "function_call",
                              "it is deprecated; use `tools` and `tool_choice`"));
  }
  refuse_fields(fields, {"return_meta_info", "audio", "session_params"});
  if (const Json* modalities = fields.array("modalities")) {
    for (const Json& modality : *modalities) {
      if (modality != "text")
        fields.fail(unsupported_parameter("modalities", "it answers in text"));
    }
  }
}

// Enough to hold a tag at the end of a prompt of ids.
constexpr size_t kPromptEndTokens = 32;

// gpt-oss's template calls reasoning "thinking", and takes it only where a message has no content.
void name_harmony_thinking(Json& messages) {
  for (Json& message : messages) {
    const auto reasoning = message.find("reasoning_content");
    if (reasoning == message.end() || message["content"] != "") continue;
    message["thinking"] = Json(*reasoning);
  }
}

// Runs the template. Some templates join a call's arguments to text instead of writing them as
// JSON: those that fail get them as text.
Result<std::string> render(const TextCodec& codec, Json messages, const Json& tools,
                           bool generation_prompt, const Json& variables) {
  auto text = codec.render_chat(messages, tools, generation_prompt, variables);
  if (text.ok() || text.status().code() != StatusCode::kInvalidArgument) return text;
  bool has_calls = false;
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    for (Json& call : *calls) {
      Json& arguments = call["function"]["arguments"];
      arguments = dump_json(arguments);
      has_calls = true;
    }
  }
  if (!has_calls) return text;
  auto again = codec.render_chat(messages, tools, generation_prompt, variables);
  return again.ok() ? std::move(again) : std::move(text);
}

}  // namespace

std::unique_ptr<ApiAdapter> make_chat_adapter(ChatAnswerOptions options) {
  return std::make_unique<ChatAdapter>(std::move(options));
}

std::optional<ApiError> read_chat_prompt(FieldReader& fields, const CallContext& context,
                                         const ToolFields& tools, size_t max_tokens,
                                         ChatPrompt& prompt) {
  const Json variables = read_template_variables(fields);
  const bool continue_final = fields.boolean("continue_final_message").value_or(false);
  const bool generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  auto ids = fields.token_ids("input_ids", context.model.vocab_size);
  const Json* messages = fields.find("messages");
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
  if (auto error = normalise_messages(*messages, normalised)) return error;
  if (reasoning == ReasoningFormat::kHarmony) name_harmony_thinking(normalised);
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
    unfinished = normalised.back()["content"].get<std::string>();
    normalised.erase(normalised.size() - 1);
  }
  const std::shared_ptr<const Json> usable = tools.usable();
  auto text = render(context.codec, std::move(normalised), usable != nullptr ? *usable : Json(),
                     generation_prompt || continue_final, variables);
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
  // The template writes the special tokens, the first one included.
  if (auto error = encode_prompt(*text + unfinished, /*add_special_tokens=*/false, max_tokens,
                                 "messages", context, prompt.ids)) {
    return error;
  }
  if (prompt.ids.empty()) {
    return invalid_value("messages", "`messages` render to an empty prompt.");
  }
  return std::nullopt;
}

PrepareResult prepare_chat(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  return prepare_chat_call(context, object, make_chat_adapter);
}

PrepareResult prepare_chat_call(const CallContext& context, const Json& body,
                                const MakeChatAdapter& make_adapter) {
  FieldReader fields(body);
  PreparedCall call;
  ChatAnswerOptions answer;
  answer.model = read_model_name(fields, context);
  read_request_id(fields, context, call);
  answer.streaming = read_stream_options(fields);
  refuse_unserved_chat_fields(fields);
  const ToolFields tools = read_tool_fields(fields);
  const std::optional<AnswerForm> form =
      add_call_form(read_answer_form(fields), tools, context, fields);
  const std::optional<int64_t> thinking_budget = read_thinking_budget(fields);
  const bool separate_reasoning = fields.boolean("separate_reasoning").value_or(true);
  answer.stream.stream_reasoning = fields.boolean("stream_reasoning").value_or(true);
  SamplingFields sampling = read_sampling_fields(fields, SamplingSpelling::kOpenAi, context.model);
  answer.logprobs = fields.boolean("logprobs").value_or(false);
  const auto top_logprobs = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top_logprobs && !answer.logprobs) {
    fields.fail(invalid_value("top_logprobs", "`top_logprobs` needs `logprobs`: true."));
  }
  const SchedulingFields scheduling = read_scheduling_fields(fields, context);
  answer.cache_details = fields.boolean("return_cached_tokens_details").value_or(false);
  answer.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  const bool return_prompt_ids =
      fields.boolean("return_prompt_token_ids").value_or(answer.return_token_ids);
  if (fields.error()) return *fields.error();
  call.answers_field = "n";
  if (auto error = check_num_answers(context, static_cast<size_t>(sampling.num_choices),
                                     call.answers_field)) {
    return *error;
  }

  Request request;
  ChatPrompt prompt;
  if (auto error =
          read_chat_prompt(fields, context, tools, max_counted_tokens(context.model), prompt)) {
    return *error;
  }
  request.prompt = std::move(prompt.ids);
  if (auto error = fit_to_context(sampling, static_cast<int64_t>(request.prompt.size()),
                                  /*default_tokens=*/std::nullopt, context.model.context_length,
                                  fields.find("input_ids") != nullptr ? "input_ids" : "messages")) {
    return *error;
  }
  const ReasoningFirst reasoning_first = prompt.starts_in_reasoning   ? ReasoningFirst::kYes
                                         : prompt.reasoning_is_closed ? ReasoningFirst::kNo
                                                                      : ReasoningFirst::kPerhaps;
  if (auto error = compile_form(context, form, reasoning_first, request.constraint)) {
    return *error;
  }
  if (auto error = StopPatterns().add(sampling)) return *error;
  const std::shared_ptr<const Json> callable = tools.usable();
  if (auto error = limit_reasoning(context, thinking_budget, reasoning_first, callable,
                                   request.constraint)) {
    return *error;
  }
  request.role_boundaries = context.codec.role_boundaries(request.prompt);
  scheduling.apply(request);
  request.sampling = sampling.sampling;
  request.stop = sampling.stop;
  const bool reads_marks =
      parsers::needs_special_tokens(context.formats.reasoning) ||
      (callable != nullptr && parsers::needs_special_tokens(context.formats.tool_calls));
  request.skip_special_tokens = sampling.skip_special_tokens && !reads_marks;
  request.return_logprobs = answer.logprobs;
  request.top_logprobs = static_cast<int32_t>(top_logprobs.value_or(0));

  answer.id = call.id;
  answer.created = context.created;
  answer.weight_version = context.weight_version;
  answer.system_fingerprint = context.system_fingerprint;
  answer.num_choices = static_cast<size_t>(sampling.num_choices);
  answer.codec = &context.codec;
  answer.reasoning_field = context.answers.reasoning_field;
  answer.stream.reasoning_end = context.formats.reasoning_end;
  answer.stream.parser = {.reasoning = context.formats.reasoning,
                          .starts_in_reasoning = prompt.starts_in_reasoning,
                          .separate_reasoning = separate_reasoning,
                          .tool_calls = context.formats.tool_calls,
                          .tools = callable,
                          .parallel_tool_calls = tools.parallel_calls,
                          .keep_call_text = !answer.streaming.stream,
                          .id_seed = {}};
  if (return_prompt_ids) answer.prompt_token_ids = request.prompt;
  call.stream = answer.streaming.stream;
  call.stream_interval = sampling.stream_interval.value_or(context.answers.stream_interval);
  call.requests.assign(answer.num_choices, request);
  for (size_t i = 0; i < call.requests.size(); ++i) {
    call.requests[i].choice_index = static_cast<int32_t>(i);
  }
  const TokenJsonBytes bytes{.token = answer.return_token_ids ? 13 : 5, .logprob = 75};
  if (!answer.streaming.stream) {
    if (auto error = check_answer_size(call.requests, bytes, false, sampling.max_tokens_name)) {
      return *error;
    }
  }
  call.adapter = make_adapter(std::move(answer));
  return call;
}

}  // namespace heddle::server

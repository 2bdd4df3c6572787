// SPDX-License-Identifier: Apache-2.0
#include "server/chat_completions.h"

#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/answer_log.h"
#include "server/call_fields.h"
#include "server/chat_messages.h"
#include "server/json_text.h"
#include "server/prompt_list.h"
#include "server/sampling_fields.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// ---- The answer ----

class ChatAdapter final : public ApiAdapter {
 public:
  explicit ChatAdapter(ChatAnswerOptions options)
      : options_(std::move(options)),
        logs_(options_.num_choices),
        started_(options_.num_choices, false) {}

  void event(size_t choice, const RequestEvent& event, std::string& out) override {
    ChoiceLog& log = logs_[choice];
    log.add(event);
    if (!options_.streaming.stream) return;
    if (!started_[choice]) append_chunk(choice, Chunk::kRole, out);
    started_[choice] = true;
    if (!log.text.empty() || shows_logprobs(log) || shows_tokens(log)) {
      append_chunk(choice, Chunk::kContent, out);
    }
    if (log.finish) append_chunk(choice, Chunk::kFinish, out);
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
    body.key("choices").begin_list();
    for (size_t i = 0; i < logs_.size(); ++i) {
      const ChoiceLog& log = logs_[i];
      const Finish finish = log.finish.value_or(Finish{});
      body.begin_object().key("index").value(i);
      body.key("message").begin_object().key("role").value("assistant");
      body.key("content").text(log.text);
      body.key("reasoning_content").value(nullptr).key("tool_calls").value(nullptr).end_object();
      body.key("logprobs");
      options_.logprobs ? add_logprobs(log, body) : body.value(nullptr);
      body.key("finish_reason").value(finish_name(finish.reason));
      body.key("matched_stop").value(matched_stop(finish));
      if (options_.return_token_ids) body.key("token_ids").integers(log.tokens);
      body.end_object();
    }
    body.end_list().key("usage").value(usage());
    body.key("metadata").value({{"weight_version", "default"}});
    if (options_.prompt_token_ids)
      body.key("prompt_token_ids").integers(*options_.prompt_token_ids);
    return std::move(body.end_object());
  }

 private:
  // A choice is streamed as its role, then what is new at each event, then its end.
  enum class Chunk { kRole, kContent, kFinish };

  void append_chunk(size_t index, Chunk kind, std::string& out) const {
    const ChoiceLog& log = logs_[index];
    const bool content = kind == Chunk::kContent;
    JsonPieces chunk;
    chunk.around("data: ");
    begin_answer(chunk, "chat.completion.chunk");
    chunk.key("choices").begin_list().begin_object().key("index").value(index);
    chunk.key("delta").begin_object();
    if (kind == Chunk::kRole) chunk.key("role").value("assistant").key("content").value("");
    if (content && !log.text.empty()) chunk.key("content").text(log.text);
    chunk.end_object().key("logprobs");
    content&& shows_logprobs(log) ? add_logprobs(log, chunk) : chunk.value(nullptr);
    chunk.key("finish_reason");
    if (kind == Chunk::kFinish) {
      chunk.value(finish_name(log.finish->reason));
      chunk.key("matched_stop").value(matched_stop(*log.finish));
    } else {
      chunk.value(nullptr);
    }
    if (content && shows_tokens(log)) chunk.key("token_ids").integers(log.tokens);
    chunk.end_object().end_list();
    if (kind == Chunk::kRole && index == 0 && options_.prompt_token_ids) {
      chunk.key("prompt_token_ids").integers(*options_.prompt_token_ids);
    }
    if (options_.streaming.continuous_usage) {
      chunk.key("usage").value(usage());
    } else if (options_.streaming.include_usage) {
      chunk.key("usage").value(nullptr);
    }
    chunk.end_object().around("\n\n").write_all(out);
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

  // {"content": [{"token": .., "logprob": .., "bytes": [..], "top_logprobs": [..]}, ..]}
  JsonPieces& add_logprobs(const ChoiceLog& log, JsonPieces& answer) const {
    const auto write_entry = [this, &log](size_t index, std::string& out) {
      append_token(log.logprobs.token(index), log.logprobs.logprob(index), out);
      out += ",\"top_logprobs\":[";
      const size_t begin = out.size();
      for (const auto& [token, logprob] : log.logprobs.top(index)) {
        if (out.size() > begin) out += ',';
        append_token(token, logprob, out);
        out += '}';
      }
      out += "]}";
    };
    return answer.begin_object().key("content").list(log.logprobs.size(), write_entry).end_object();
  }

  // The object is left open.
  void append_token(TokenId token, float logprob, std::string& out) const {
    const std::string bytes = options_.codec->token_bytes(token);
    out += "{\"token\":";
    append_json_string(bytes, out);
    out += ",\"logprob\":";
    append_logprob(logprob, out);
    out += ",\"bytes\":[";
    for (size_t i = 0; i < bytes.size(); ++i) {
      fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",",
                     static_cast<unsigned char>(bytes[i]));
    }
    out += ']';
  }

  ChatAnswerOptions options_;
  std::vector<ChoiceLog> logs_;
  std::vector<bool> started_;  // per choice: its role was streamed
};

// ---- The request ----

// The tools the template shall show: a list, or null for none.
Json read_tools(FieldReader& fields) {
  const Json* tools = fields.array("tools");
  if (tools != nullptr && tools->empty()) tools = nullptr;
  if (tools != nullptr) {
    if (auto error = check_tools(*tools)) fields.fail(std::move(*error));
  }
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return tools == nullptr ? Json(nullptr) : *tools;
  if (choice->is_string() && *choice == "none") return nullptr;
  if (choice->is_string() && *choice == "auto") return tools == nullptr ? Json(nullptr) : *tools;
  if (!choice->is_object() && !(choice->is_string() && *choice == "required")) {
    fields.fail(invalid_value(
        "tool_choice",
        "`tool_choice` must be none, auto, required or an object that names a tool."));
  } else if (tools == nullptr) {
    fields.fail(
        invalid_value("tool_choice", "`tool_choice` asks for a tool, but `tools` is empty."));
  } else {
    fields.fail(unsupported_parameter("tool_choice", "a call cannot be forced; use auto or none"));
  }
  return nullptr;
}

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

// What the template sees beside messages and tools.
Json read_template_variables(FieldReader& fields) {
  Json variables = Json::object();
  if (const Json* extra = fields.object("chat_template_kwargs")) variables = *extra;
  read_effort(fields, "reasoning_effort", variables);
  if (const Json* reasoning = fields.object("reasoning")) {
    FieldReader inner(*reasoning, "reasoning.");
    refuse_fields(inner, {"max_tokens"});
    read_effort(inner, "effort", variables);
    if (const auto enabled = inner.boolean("enabled")) {
      variables.emplace("thinking", Json(*enabled));
      variables.emplace("enable_thinking", Json(*enabled));
    }
    if (inner.error()) fields.fail(*inner.error());
  }
  if (variables.contains("thinking_budget")) {
    fields.fail(unsupported_parameter("chat_template_kwargs.thinking_budget"));
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
  refuse_fields(fields, {"return_meta_info", "audio"});
  if (const Json* modalities = fields.array("modalities")) {
    for (const Json& modality : *modalities) {
      if (modality != "text")
        fields.fail(unsupported_parameter("modalities", "it answers in text"));
    }
  }
}

}  // namespace

std::unique_ptr<ApiAdapter> make_chat_adapter(ChatAnswerOptions options) {
  return std::make_unique<ChatAdapter>(std::move(options));
}

std::optional<ApiError> read_chat_prompt(FieldReader& fields, const CallContext& context,
                                         size_t max_tokens, std::vector<TokenId>& prompt) {
  const Json tools = read_tools(fields);
  const Json variables = read_template_variables(fields);
  const bool continue_final = fields.boolean("continue_final_message").value_or(false);
  const bool generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  auto ids = fields.token_ids("input_ids", context.model.vocab_size);
  const Json* messages = fields.find("messages");
  if (fields.error()) return fields.error();
  if (ids) {
    if (ids->empty()) return invalid_value("input_ids", "`input_ids` is empty.");
    prompt = std::move(*ids);
    return std::nullopt;
  }
  if (messages == nullptr) return missing_parameter("messages");

  Json normalised;
  if (auto error = normalise_messages(*messages, normalised)) return error;
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
  auto text =
      context.codec.render_chat(normalised, tools, generation_prompt || continue_final, variables);
  if (!text.ok()) {
    if (text.status().code() == StatusCode::kUnimplemented ||
        text.status().code() == StatusCode::kInvalidArgument ||
        text.status().code() == StatusCode::kResourceExhausted) {
      return invalid_value("messages", text.status().message());
    }
    return error_from_status(text.status(), context.id);
  }
  // The template writes the special tokens, the first one included.
  if (auto error = encode_prompt(*text + unfinished, /*add_special_tokens=*/false, max_tokens,
                                 "messages", context, prompt)) {
    return error;
  }
  if (prompt.empty()) return invalid_value("messages", "`messages` render to an empty prompt.");
  return std::nullopt;
}

PrepareResult prepare_chat(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  PreparedCall call;
  ChatAnswerOptions answer;
  answer.model = read_model_name(fields, context);
  read_request_id(fields, context, call);
  answer.streaming = read_stream_options(fields);
  refuse_unserved_chat_fields(fields);
  check_response_format(fields);
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
  if (auto error =
          read_chat_prompt(fields, context, max_counted_tokens(context.model), request.prompt)) {
    return *error;
  }
  if (auto error = fit_to_context(sampling, static_cast<int64_t>(request.prompt.size()),
                                  /*default_tokens=*/std::nullopt, context.model.context_length,
                                  fields.find("input_ids") != nullptr ? "input_ids" : "messages")) {
    return *error;
  }
  request.role_boundaries = context.codec.role_boundaries(request.prompt);
  scheduling.apply(request);
  request.sampling = sampling.sampling;
  request.stop = sampling.stop;
  request.skip_special_tokens = sampling.skip_special_tokens;
  request.return_logprobs = answer.logprobs;
  request.top_logprobs = static_cast<int32_t>(top_logprobs.value_or(0));

  answer.id = call.id;
  answer.created = context.created;
  answer.num_choices = static_cast<size_t>(sampling.num_choices);
  answer.codec = &context.codec;
  if (return_prompt_ids) answer.prompt_token_ids = request.prompt;
  call.stream = answer.streaming.stream;
  call.stream_interval = sampling.stream_interval;
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
  call.adapter = make_chat_adapter(std::move(answer));
  return call;
}

}  // namespace heddle::server

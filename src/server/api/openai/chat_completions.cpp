// SPDX-License-Identifier: Apache-2.0
#include "server/api/openai/chat_completions.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parsers/parameter_type.h"
#include "server/call/answer_form.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/chat_prompt.h"
#include "server/call/prompt_list.h"
#include "server/call/sampling_fields.h"
#include "server/call/tool_fields.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

void refuse_unserved_chat_fields(FieldReader& fields) {
  refuse_unserved_features(fields);
  for (const char* const name : {"functions", "function_call"}) {
    const Json* const value = fields.find(name);
    // Old clients always send a value that requests no call.
    if (value == nullptr || *value == "none" || (value->is_array() && value->empty())) continue;
    fields.fail(unsupported_parameter(name, "it is deprecated; use `tools` and `tool_choice`"));
  }
  refuse_fields(fields, {"return_meta_info", "audio"});
  refuse_sessions(fields);
  if (const Json* modalities = fields.array(Body::kChat["modalities"])) {
    for (const Json& modality : *modalities) {
      if (modality != "text") fields.fail(unsupported_parameter("modalities", "answers are text"));
    }
  }
}

// Maps the budget of reasoning to the field in which the request has it.
FieldNames name_of_budget(FieldReader& fields) {
  FieldNames names;
  if (fields.find(Body::kThinking["max_thinking_tokens"]) != nullptr) return names;
  for (const auto& [object, field] :
       {std::pair("reasoning", "max_tokens"), std::pair("chat_template_kwargs", "thinking_budget"),
        std::pair("custom_params", "thinking_budget")}) {
    const Json* const value = fields.find(object);
    if (value == nullptr || !value->is_object() || !value->contains(field)) continue;
    names.add("max_thinking_tokens", fmt::format("{}.{}", object, field));
    break;
  }
  return names;
}

// See AnswerStreamOptions::text_stops. Special tokens do not count as text.
std::vector<std::pair<TokenId, std::string>> text_stops(const CallContext& context,
                                                        std::span<const TokenId> stop_token_ids) {
  std::vector<std::pair<TokenId, std::string>> stops;
  const std::vector<TokenId>& ends = context.model.eos_token_ids;
  for (const TokenId id : stop_token_ids) {
    if (std::ranges::find(ends, id) != ends.end()) continue;
    std::string text = context.codec.decode({&id, 1}, /*skip_special_tokens=*/true);
    if (!text.empty()) stops.emplace_back(id, std::move(text));
  }
  return stops;
}

}  // namespace

PrepareResult prepare_chat(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  return prepare_chat_call(context, object, make_chat_adapter);
}

PrepareResult prepare_chat_call(const CallContext& context, const Json& body,
                                const MakeChatAdapter& make_adapter, SamplingSpelling spelling) {
  FieldReader fields(body);
  PreparedCall call;
  ChatAnswerOptions answer{read_openai_answer(fields, context, call)};
  refuse_unserved_chat_fields(fields);
  const ToolFields tools = read_tool_fields(fields);
  const std::optional<AnswerForm> form =
      add_call_form(read_answer_form(fields), tools, context, fields);
  const std::optional<int64_t> thinking_budget = read_thinking_budget(fields);
  const bool separate_reasoning = fields.flag(Body::kChat["separate_reasoning"]);
  answer.stream.stream_reasoning = fields.flag(Body::kChat["stream_reasoning"]);
  SamplingFields sampling = read_sampling_fields(fields, spelling, context.model);
  answer.logprobs = fields.flag(Body::kChat["logprobs"]);
  const auto top_logprobs = fields.integer(Body::kChat["top_logprobs"]);
  if (top_logprobs.value_or(0) > 0 && !answer.logprobs) {
    fields.fail(invalid_value("top_logprobs", "`top_logprobs` needs `logprobs`: true."));
  }
  const SchedulingFields scheduling = read_scheduling_fields(fields, context);
  const bool return_prompt_ids =
      fields.boolean(Body::kChat["return_prompt_token_ids"]).value_or(answer.return_token_ids);
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
  context.note_unasked(fields);
  if (const Json* const reasoning = fields.object(Body::kThinking["reasoning"])) {
    FieldReader inner(*reasoning, "reasoning.");
    for (const Field& field : Body::kReasoning.fields) static_cast<void>(inner.find(field));
    context.note_unasked(inner);
  }
  request.prompt = std::move(prompt.ids);
  if (auto error = fit_to_context(
          sampling, static_cast<int64_t>(request.prompt.size()),
          /*default_tokens=*/std::nullopt, context.model.context_length,
          context.answers.max_tokens_overflow,
          fields.find(Body::kChatInput["input_ids"]) != nullptr ? "input_ids" : "messages")) {
    return *error;
  }
  const ReasoningFirst reasoning_first = prompt.starts_in_reasoning   ? ReasoningFirst::kYes
                                         : prompt.reasoning_is_closed ? ReasoningFirst::kNo
                                                                      : ReasoningFirst::kPerhaps;
  if (auto error = compile_form(context, form, reasoning_first, request.constraint)) {
    return *error;
  }
  if (auto error = StopPatterns().add(sampling)) return *error;
  if (tools.choice.forces_call()) {
    // Stop texts would cut the call, because its arguments may contain them. The constraint on the
    // call determines its end.
    if (auto error = check_stop_texts(sampling.stop, context.answers, "stop")) return *error;
    sampling.stop.texts.clear();
    sampling.stop.patterns.clear();
  }
  const std::shared_ptr<const Json> callable = tools.usable();
  if (auto error = limit_reasoning(context, thinking_budget, reasoning_first, callable,
                                   request.constraint)) {
    name_of_budget(fields).restore(*error);
    return *error;
  }
  request.role_boundaries = context.codec.role_boundaries(request.prompt);
  scheduling.apply(request);
  request.sampling = sampling.sampling;
  request.stop = sampling.stop;
  const bool has_calls_alone = tools.choice.forces_call() && separate_reasoning;
  const parsers::ToolCallFormat call_format = tools.format(context.formats.tool_calls);
  const bool reads_marks = parsers::needs_special_tokens(context.formats.reasoning) ||
                           (callable != nullptr && parsers::needs_special_tokens(call_format));
  request.skip_special_tokens = sampling.skip_special_tokens && !reads_marks;
  request.return_logprobs = answer.logprobs;
  request.top_logprobs = static_cast<int32_t>(top_logprobs.value_or(0));

  answer.system_fingerprint = context.system_fingerprint;
  answer.num_choices = static_cast<size_t>(sampling.num_choices);
  answer.reasoning_field = context.answers.reasoning_field;
  answer.stream.reasoning_end = context.formats.reasoning_end;
  answer.stream.parser = {.reasoning = context.formats.reasoning,
                          .starts_in_reasoning = prompt.starts_in_reasoning,
                          .separate_reasoning = separate_reasoning,
                          .tool_calls = call_format,
                          .tools = parsers::point_tools(callable),
                          .parallel_tool_calls = tools.parallel_calls,
                          .keep_call_text = !answer.streaming.stream && !has_calls_alone,
                          .is_held_to_form = form && callable != nullptr,
                          .id_seed = {}};
  answer.stream.has_calls_alone = has_calls_alone;
  if (callable != nullptr) answer.stream.text_stops = text_stops(context, sampling.stop.token_ids);
  answer.custom_tools = tools.custom;
  if (return_prompt_ids) answer.prompt_token_ids = request.prompt;
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

// SPDX-License-Identifier: Apache-2.0
#include "server/completions.h"

#include <nlohmann/json.hpp>

#include "server/json_text.h"
#include "server/prompt_list.h"
#include "server/sampling_fields.h"
#include "server/scheduling_fields.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's

// The text each prompt's answers begin with: as it was sent, or spelled out from ids.
std::vector<std::string> echo_texts(const Json& prompt, const PromptList& list,
                                    const TextCodec& codec) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < list.prompts.size(); ++i) {
    const Json& item = list.batched ? prompt[i] : prompt;
    texts.push_back(item.is_string() ? item.get<std::string>()
                                     : codec.decode(list.prompts[i], /*skip_special_tokens=*/true));
  }
  return texts;
}

}  // namespace

PrepareResult prepare_completions(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  PreparedCall call;
  CompletionAnswerOptions answer;
  answer.model = read_model_name(fields, context);
  read_request_id(fields, context, call);
  answer.streaming = read_stream_options(fields);
  refuse_unserved_features(fields);
  refuse_fields(fields, {"suffix"});
  check_response_format(fields);
  const SamplingFields sampling =
      read_sampling_fields(fields, SamplingSpelling::kOpenAi, context.model);
  const auto best_of = fields.integer("best_of", 1, kMaxChoices);
  if (best_of && *best_of != sampling.num_choices) {
    fields.fail(unsupported_parameter("best_of", "ask for `n` answers and choose among them"));
  }
  const auto logprobs = fields.integer("logprobs", 0, kMaxTopLogprobs);
  answer.logprobs = logprobs.has_value();
  const bool echo = fields.boolean("echo").value_or(false);
  if (echo && logprobs) {
    fields.fail(unsupported_parameter("echo", "with `logprobs`: a prompt's own are not computed"));
  }
  const SchedulingFields scheduling = read_scheduling_fields(fields, context);
  answer.cache_details = fields.boolean("return_cached_tokens_details").value_or(false);
  answer.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) fields.fail(missing_parameter("prompt"));
  if (fields.error()) return *fields.error();

  PromptList list;
  if (auto error = read_prompts(*prompt, "prompt", context, true, true, list)) return *error;
  const size_t per_prompt = static_cast<size_t>(sampling.num_choices);
  call.answers_field = per_prompt > 1 ? "n" : "prompt";
  if (auto error =
          check_num_answers(context, list.prompts.size() * per_prompt, call.answers_field)) {
    return *error;
  }
  if (echo) answer.echoes = echo_texts(*prompt, list, context.codec);
  if (answer.return_token_ids) answer.prompt_token_ids = list.prompts;
  for (const auto& ids : list.prompts) {
    SamplingFields fitted = sampling;
    if (auto error = fit_to_context(fitted, static_cast<int64_t>(ids.size()), kDefaultMaxTokens,
                                    context.model.context_length, "prompt")) {
      return *error;
    }
    Request request;
    request.prompt = ids;
    request.role_boundaries = context.codec.role_boundaries(request.prompt);
    scheduling.apply(request);
    request.sampling = fitted.sampling;
    request.stop = fitted.stop;
    request.skip_special_tokens = fitted.skip_special_tokens;
    request.return_logprobs = answer.logprobs;
    request.top_logprobs = static_cast<int32_t>(logprobs.value_or(0));
    for (size_t i = 0; i < per_prompt; ++i) {
      request.choice_index = static_cast<int32_t>(i);
      call.requests.push_back(request);
    }
  }
  const TokenJsonBytes bytes{.token = answer.return_token_ids ? 13 : 5, .logprob = 35};
  if (!answer.streaming.stream) {
    if (auto error = check_answer_size(call.requests, bytes, false, "max_tokens")) return *error;
  }
  answer.id = call.id;
  answer.created = context.created;
  answer.num_choices = call.requests.size();
  answer.choices_per_prompt = per_prompt;
  answer.codec = &context.codec;
  call.stream = answer.streaming.stream;
  call.stream_interval = sampling.stream_interval;
  call.adapter = make_completion_adapter(std::move(answer));
  return call;
}

}  // namespace heddle::server

// SPDX-License-Identifier: Apache-2.0
#include "server/api/native/native_generate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "request/validate.h"
#include "server/api/native/generate_answer.h"
#include "server/api/native/session_fields.h"
#include "server/api/native/session_store.h"
#include "server/call/answer_form.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/prompt_list.h"
#include "server/call/sampling_fields.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultMaxNewTokens = 128;

void refuse_unserved_generate_fields(FieldReader& fields) {
  refuse_unserved_features(fields);
  refuse_fields(fields, {"image_data", "video_data", "audio_data"});
}

// The value of a field for one prompt of a batch: the field has one value for all prompts, or a
// list with one per prompt.
const Json* per_prompt(FieldReader& fields, const Json* value, size_t index, size_t num_prompts,
                       std::string_view name) {
  if (value == nullptr || !value->is_array()) return value;
  if (value->size() != num_prompts) {
    fields.fail(invalid_value(name, fmt::format("`{}` has {} entries for {} prompts.", name,
                                                value->size(), num_prompts)));
    return nullptr;
  }
  return &(*value)[index];
}

struct LogprobFields {
  bool wanted = false;
  int32_t num_top = 0;
  // Tokens whose log probabilities are requested at every position.
  std::optional<std::vector<TokenId>> tokens;
  // Index of the first prompt token whose log probability is requested.
  std::optional<int64_t> prompt_from;
};

// Reads `token_ids_logprob`: one list for all prompts, or a list with one per prompt.
std::optional<std::vector<TokenId>> read_logprob_tokens(FieldReader& fields, size_t index,
                                                        size_t num_prompts, int64_t vocab_size) {
  constexpr std::string_view kName = Body::kGenerate["token_ids_logprob"];
  const Json* list = fields.array(kName);
  if (list != nullptr && !list->empty() && !list->front().is_number()) {
    list = per_prompt(fields, list, index, num_prompts, kName);
  }
  if (list == nullptr || list->is_null()) return std::nullopt;
  std::vector<TokenId> ids;
  if (!list->is_array() || !read_token_ids(*list, vocab_size, /*skip_nulls=*/false, ids)) {
    fields.fail(invalid_value(
        kName, fmt::format("`{}` must be a list of token ids from 0 to {}, or one for each prompt.",
                           kName, vocab_size - 1)));
  } else if (ids.size() > request::kMaxLogprobTokens) {
    fields.fail(invalid_value(kName, fmt::format("`{}` has {} tokens; at most {} are allowed.",
                                                 kName, ids.size(), request::kMaxLogprobTokens)));
  }
  return ids;
}

LogprobFields read_logprobs(FieldReader& fields, const CallContext& context, size_t index,
                            const PromptList& list) {
  const size_t num_prompts = list.prompts.size();
  const auto value_of = [&](const Field& name) {
    const Json* value = per_prompt(fields, fields.find(name), index, num_prompts, name);
    return value == nullptr ? Json() : *value;
  };
  const Json entry = {{"return_logprob", value_of(Body::kGenerate["return_logprob"])},
                      {"top_logprobs_num", value_of(Body::kGenerate["top_logprobs_num"])},
                      {"logprob_start_len", value_of(Body::kGenerate["logprob_start_len"])}};
  FieldReader inner(entry);
  LogprobFields result;
  result.wanted = inner.flag(Body::kGenerate["return_logprob"]);
  result.num_top =
      static_cast<int32_t>(inner.integer_or_preset(Body::kGenerate["top_logprobs_num"]));
  const int64_t from = inner.integer_or_preset(Body::kGenerate["logprob_start_len"]);
  const int64_t prompt_tokens = std::ssize(list.prompts[index]);
  if (result.wanted && from > prompt_tokens) {
    inner.fail(invalid_value(
        "logprob_start_len",
        fmt::format("`logprob_start_len` is {}; the prompt has {} tokens.", from, prompt_tokens)));
  }
  if (result.wanted && from >= 0) result.prompt_from = from;
  if (inner.error()) fields.fail(*inner.error());
  result.tokens = read_logprob_tokens(fields, index, num_prompts, context.model.vocab_size);
  return result;
}

// Reads the scheduling fields of a prompt. `user`, which this route also calls `tenant`, applies to
// the whole batch; all others may be lists.
SchedulingFields read_prompt_scheduling(FieldReader& fields, const CallContext& context,
                                        size_t index, size_t num_prompts) {
  Json entry = Json::object();
  for (const Field& field : Body::kScheduling.fields) {
    if (field.name == "user") continue;
    const Json* value = per_prompt(fields, fields.find(field), index, num_prompts, field);
    if (value != nullptr) entry[std::string(field)] = *value;
  }
  if (const auto user = fields.string(Body::kScheduling["user"])) entry["user"] = *user;
  if (const auto tenant = fields.string(Body::kGenerate["tenant"])) entry["user"] = *tenant;
  if (const auto model = fields.string(Body::kModel["model"])) entry["model"] = *model;
  FieldReader inner(entry);
  SchedulingFields result = read_scheduling_fields(inner, context);
  if (inner.error()) fields.fail(*inner.error());
  return result;
}

std::optional<ApiError> read_generate_prompts(FieldReader& fields, const CallContext& context,
                                              PromptList& list, std::string& param) {
  const Json* text = fields.find(Body::kGenerate["text"]);
  const Json* ids = fields.find(Body::kGenerate["input_ids"]);
  if (text == nullptr && ids == nullptr) return missing_parameter("text");
  if (text != nullptr && ids != nullptr) {
    return invalid_value("text", "Give either `text` or `input_ids`, not both.");
  }
  param = text != nullptr ? "text" : "input_ids";
  return read_prompts(text != nullptr ? *text : *ids, param, context, text != nullptr,
                      text == nullptr, list);
}

// One id per prompt: from a list, or for a batch a single id with the suffixes _0, _1, ...
std::vector<std::string> read_prompt_ids(FieldReader& fields, const CallContext& context,
                                         const PromptList& list, PreparedCall& call) {
  const Json* rid = fields.find(Body::kGenerate["rid"]);
  const size_t count = list.prompts.size();
  if (rid != nullptr && rid->is_array()) {
    std::vector<std::string> ids;
    for (const Json& id : *rid) {
      if (id.is_string() && is_request_id(id.get_ref<const std::string&>())) {
        ids.push_back(id.get<std::string>());
      }
    }
    if (ids.size() != count || rid->size() != count) {
      fields.fail(invalid_value(
          "rid", fmt::format("`rid` must have a valid id for each of the {} prompts.", count)));
      ids.resize(count);
    }
    if (std::set<std::string_view>(ids.begin(), ids.end()).size() != ids.size()) {
      fields.fail(invalid_value("rid", "`rid` has an id twice; each prompt needs its own."));
    }
    call.id = ids.front();
    call.id_is_callers = true;
    return ids;
  }
  read_request_id(fields, context, call);
  if (!list.batched) return {call.id};
  std::vector<std::string> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(fmt::format("{}_{}", call.id, i));
  return ids;
}

// The token with which every text begins, if the model has one.
std::optional<TokenId> first_token(const TextCodec& codec) {
  const auto tokens = codec.encode("", /*add_special_tokens=*/true);
  if (!tokens.ok() || tokens->empty()) return std::nullopt;
  return tokens->front();
}

// The session of a request, from which its turns are read and in which they are stored.
struct SessionPlace {
  std::optional<SessionParams> params;
  std::string holder;
};

// Puts the tokens of the session before the prompt.
std::optional<ApiError> read_session(FieldReader& fields, const CallContext& context,
                                     PromptList& list, SessionPlace& place) {
  place.params = read_session_params(fields);
  if (fields.error()) return *fields.error();
  if (!place.params) return std::nullopt;
  if (list.batched || context.sessions == nullptr) {
    return invalid_value("session_params", "A request of a session has one prompt.");
  }
  if (!context.head.stored_refusal.empty()) return stored_refused(context.head, "session_params");
  place.holder = holder_of(context.head.key);
  return context.sessions->extend(*place.params, place.holder, first_token(context.codec),
                                  context.created, list.prompts.front());
}

// The fields that may differ between the prompts of a batch.
struct PromptFields {
  SamplingFields sampling;
  SchedulingFields scheduling;
  LogprobFields logprobs;
  std::optional<AnswerForm> form;
  std::optional<int64_t> thinking_budget;
};

// Limit for different constraints in one call.
constexpr size_t kMaxForms = 64;

std::optional<ApiError> check_num_forms(const std::vector<PromptFields>& prompts) {
  std::set<grammar::GrammarSource> forms;
  for (const PromptFields& prompt : prompts) {
    if (prompt.form) forms.insert(prompt.form->source);
    if (forms.size() > kMaxForms) {
      return invalid_value("sampling_params",
                           fmt::format("`sampling_params` asks for more than {} different forms of "
                                       "answers; send the prompts in several calls.",
                                       kMaxForms));
    }
  }
  return std::nullopt;
}

std::variant<PromptFields, ApiError> read_prompt_fields(FieldReader& fields,
                                                        const CallContext& context,
                                                        const PromptList& list, size_t index,
                                                        std::string_view prompt_param) {
  const size_t num_prompts = list.prompts.size();
  const Json* params = per_prompt(fields, fields.find(Body::kGenerate["sampling_params"]), index,
                                  num_prompts, "sampling_params");
  if (params != nullptr && !params->is_object()) {
    fields.fail(invalid_type("sampling_params", "an object or a list of objects"));
  }
  PromptFields result;
  result.logprobs = read_logprobs(fields, context, index, list);
  result.scheduling = read_prompt_scheduling(fields, context, index, num_prompts);
  if (fields.error()) return *fields.error();
  const Json nothing = Json::object();
  FieldReader inner(params == nullptr || params->is_null() ? nothing : *params, "sampling_params.");
  result.sampling = read_sampling_fields(inner, SamplingSpelling::kNative, context.model);
  result.form = read_answer_form(inner);
  result.thinking_budget = read_thinking_budget(inner);
  if (const auto budget = read_thinking_budget(fields)) {
    result.thinking_budget = std::min(result.thinking_budget.value_or(*budget), *budget);
  }
  if (fields.error()) return *fields.error();
  if (inner.error()) return *inner.error();
  for (const std::string& name : inner.unasked()) {
    context.note_unused("field", inner.name_of(name));
  }
  const auto fit = [&](const std::vector<TokenId>& ids, SamplingFields sampling) {
    auto error = fit_to_context(sampling, std::ssize(ids), kDefaultMaxNewTokens,
                                context.model.context_length, context.answers.max_tokens_overflow,
                                prompt_param);
    result.sampling = std::move(sampling);
    return error;
  };
  const SamplingFields asked = result.sampling;
  if (auto error = fit(list.prompts[index], asked)) {
    // If the parameters apply to all prompts, the error names the limit that suits the longest one.
    const Json* const all = fields.find(Body::kGenerate["sampling_params"]);
    const bool is_for_all = all == nullptr || !all->is_array();
    return is_for_all ? *fit(longest_prompt(list), asked) : *error;
  }
  return result;
}

PrepareResult prepare(const CallContext& context, const Json& object, bool as_predictions) {
  FieldReader fields(object);
  PreparedCall call;
  GenerateAnswerOptions answer;
  refuse_unserved_generate_fields(fields);
  answer.stream = fields.flag(Body::kGenerate["stream"]);
  call.no_logs = fields.flag(Body::kGenerate["no_logs"]);
  answer.stream_increments = context.answers.stream_increments;
  answer.text_in_logprobs = fields.flag(Body::kGenerate["return_text_in_logprobs"]);
  const bool reasons_first = fields.flag(Body::kGenerate["require_reasoning"]);
  const bool return_prompt_ids = fields.flag(Body::kGenerate["return_prompt_token_ids"]);
  if (fields.find(Body::kModel["model"]) != nullptr)
    static_cast<void>(read_model_name(fields, context));
  PromptList list;
  std::string prompt_param;
  if (fields.error()) return *fields.error();
  if (auto error = read_generate_prompts(fields, context, list, prompt_param)) return *error;
  SessionPlace session;
  if (auto error = read_session(fields, context, list, session)) return *error;
  const size_t num_prompts = list.prompts.size();
  const std::vector<std::string> ids = read_prompt_ids(fields, context, list, call);

  // First checks everything that can be refused, then builds the requests, which copy the prompts.
  std::vector<PromptFields> prompts;
  size_t num_answers = 0;
  for (size_t i = 0; i < num_prompts; ++i) {
    auto read = read_prompt_fields(fields, context, list, i, prompt_param);
    if (const auto* const error = std::get_if<ApiError>(&read)) return *error;
    prompts.push_back(std::get<PromptFields>(std::move(read)));
    num_answers += static_cast<size_t>(prompts.back().sampling.num_choices);
  }
  context.note_unasked(fields);
  const bool several_answers = num_answers > num_prompts;
  if (session.params && several_answers) {
    return invalid_value("session_params", "A request of a session has one answer: `n` must be 1.");
  }
  call.answers_field = several_answers ? "sampling_params.n" : prompt_param;
  if (auto error = check_num_answers(context, num_answers, call.answers_field)) return *error;
  if (auto error = check_num_forms(prompts)) return *error;
  StopPatterns stop_patterns;
  for (PromptFields& prompt : prompts) {
    if (auto error = stop_patterns.add(prompt.sampling)) return *error;
  }
  const CompileClock clock;
  for (size_t i = 0; i < num_prompts; ++i) {
    const SamplingFields& sampling = prompts[i].sampling;
    if (auto error = clock.check("sampling_params")) return *error;
    Request request;
    request.prompt = std::move(list.prompts[i]);
    request.role_boundaries = context.codec.role_boundaries(request.prompt);
    prompts[i].scheduling.apply(request);
    request.sampling = sampling.sampling;
    request.stop = sampling.stop;
    // A constraint applies from the first token, unless the request says that the model reasons
    // first.
    const ReasoningFirst reasoning = prompts[i].form && !reasons_first
                                         ? ReasoningFirst::kNo
                                         : reasoning_after(context, request.prompt);
    if (auto error = compile_form(context, prompts[i].form, reasoning, request.constraint)) {
      return *error;
    }
    if (auto error = limit_reasoning(context, prompts[i].thinking_budget, reasoning,
                                     /*tools=*/nullptr, request.constraint)) {
      return *error;
    }
    request.skip_special_tokens = sampling.skip_special_tokens;
    request.return_logprobs = prompts[i].logprobs.wanted;
    request.top_logprobs = prompts[i].logprobs.wanted ? prompts[i].logprobs.num_top : 0;
    const bool lists_tokens = prompts[i].logprobs.wanted && prompts[i].logprobs.tokens;
    if (lists_tokens) request.logprob_tokens = *std::move(prompts[i].logprobs.tokens);
    const std::optional<int64_t> from = prompts[i].logprobs.prompt_from;
    if (from) request.prompt_logprobs = {.from = *from, .top = request.top_logprobs};
    const std::optional<TokenId> first_token =
        from == 0 ? std::optional(request.prompt.front()) : std::nullopt;
    call.stream_interval = std::max(
        call.stream_interval, sampling.stream_interval.value_or(context.answers.stream_interval));
    const size_t begin = call.requests.size();
    if (list.batched) {
      call.names.push_back({ids[i], begin, begin + static_cast<size_t>(sampling.num_choices)});
    }
    for (int64_t choice = 0; choice < sampling.num_choices; ++choice) {
      const size_t index = call.requests.size();
      request.choice_index = static_cast<int32_t>(choice);
      call.requests.push_back(request);
      std::string id = ids[i];
      if (sampling.num_choices > 1) {
        id += fmt::format("_{}", choice);
        call.names.push_back({id, index, index + 1});
      }
      answer.choices.push_back(
          {.id = std::move(id),
           .prompt_index = i,
           .logprobs = request.return_logprobs,
           .logprob_tokens = lists_tokens ? std::optional(request.logprob_tokens) : std::nullopt,
           .first_token = first_token});
    }
    if (return_prompt_ids) answer.prompt_token_ids.push_back(std::move(request.prompt));
  }
  const TokenJsonBytes bytes{.token = 13, .logprob = answer.text_in_logprobs ? 44 : 35};
  if (answer.stream) {
    if (auto error = check_prompt_logprobs_size(call.requests, bytes, "logprob_start_len")) {
      return *error;
    }
  }
  if (auto error =
          check_answer_size(call.requests, bytes, answer.stream && !answer.stream_increments,
                            "sampling_params.max_new_tokens", "logprob_start_len")) {
    return *error;
  }
  if (session.params) {
    if (auto error =
            context.sessions->begin(*session.params, session.holder, ids.front(),
                                    call.requests.front().prompt, context.created, answer.turn)) {
      return *error;
    }
  }
  answer.as_list = list.batched || several_answers;
  answer.codec = &context.codec;
  answer.as_predictions = as_predictions;
  answer.weight_version = context.weight_version;
  call.stream = answer.stream;
  call.adapter = make_generate_adapter(std::move(answer));
  return call;
}

// Collects a field of /generate from the instances: if the first one has it, all others must.
std::optional<ApiError> gather_instances(const Json& instances, Json& generate, FieldNames& names) {
  const char* const name =
      instances[0].is_object() && instances[0].contains("text") ? "text" : "input_ids";
  Json& inputs = generate[name] = Json::array();
  names.add(name, "instances");
  for (size_t i = 0; i < instances.size(); ++i) {
    if (!instances[i].is_object() || !instances[i].contains(name)) {
      return missing_parameter(fmt::format("instances[{}].{}", i, name));
    }
    for (const auto& [key, value] : instances[i].items()) {
      if (key != name) return unsupported_parameter(fmt::format("instances[{}].{}", i, key));
    }
    inputs.push_back(instances[i][name]);
    if (i < kMaxPrompts) {
      names.add(fmt::format("{}[{}]", name, i), fmt::format("instances[{}].{}", i, name));
    }
  }
  return std::nullopt;
}

}  // namespace

PrepareResult prepare_generate(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  return prepare(context, object, /*as_predictions=*/false);
}

PrepareResult prepare_vertex(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const Json* const instances = fields.array(Body::kVertex["instances"]);
  const Json* const parameters = fields.object(Body::kVertex["parameters"]);
  if (fields.error()) return *fields.error();
  if (instances == nullptr) return missing_parameter("instances");
  if (instances->empty()) {
    JsonPieces nothing;
    nothing.begin_object().key("predictions").begin_list().end_list().end_object();
    return JsonAnswer{.body = std::move(nothing), .shown = nullptr};
  }
  Json generate = parameters != nullptr ? *parameters : Json::object();
  if (const auto no_logs = fields.boolean(Body::kVertex["no_logs"])) generate["no_logs"] = *no_logs;
  if (fields.error()) return *fields.error();
  for (const char* const input : {"text", "input_ids"}) generate.erase(input);
  FieldNames names;
  for (const auto& [name, value] : generate.items()) names.add(name, "parameters." + name);
  if (auto error = gather_instances(*instances, generate, names)) return *error;
  PrepareResult result = prepare(context, generate, /*as_predictions=*/true);
  if (auto* const error = std::get_if<ApiError>(&result)) names.restore(*error);
  return result;
}

}  // namespace heddle::server

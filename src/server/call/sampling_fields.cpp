// SPDX-License-Identifier: Apache-2.0
#include "server/call/sampling_fields.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "request/validate.h"
#include "server/call/body_fields.h"
#include "server/http/http_message.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Whether the value is -1 or -1.0, but not 2^64 - 1.
bool is_minus_one(const Json* value) {
  return value != nullptr && value->is_number() && !value->is_number_unsigned() && *value == -1;
}

void read_numbers(FieldReader& fields, SamplingParams& sampling) {
  const auto take = [&fields](const Field& field, float& target) {
    if (const auto value = fields.number(field)) target = static_cast<float>(*value);
  };
  take(Body::kSampling["temperature"], sampling.temperature);
  take(Body::kSampling["top_p"], sampling.top_p);
  take(Body::kSampling["min_p"], sampling.min_p);
  take(Body::kSampling["frequency_penalty"], sampling.frequency_penalty);
  take(Body::kSampling["presence_penalty"], sampling.presence_penalty);
  take(Body::kSampling["repetition_penalty"], sampling.repetition_penalty);
  if (const auto top_k = fields.integer(Body::kSampling["top_k"])) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    sampling.top_k = *top_k == 0 ? -1 : static_cast<int32_t>(std::min(*top_k, kMost));
  }
}

void read_logit_bias(FieldReader& fields, int64_t vocab_size, SamplingParams& sampling) {
  const Json* const sent = fields.find(Body::kSampling["logit_bias"]);
  // An empty list means the same in llama.cpp's API.
  if (sent == nullptr || (sent->is_array() && sent->empty())) return;
  const Json* biases = fields.object(Body::kSampling["logit_bias"]);
  if (biases == nullptr) return;
  const auto fail = [&fields](std::string message) {
    fields.fail({.code = "invalid_logit_bias",
                 .message = std::move(message),
                 .param = fields.name_of("logit_bias")});
  };
  for (const auto& [key, value] : biases->items()) {
    TokenId id = -1;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failure != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
      return fail(fmt::format("`logit_bias` has the key \"{}\"; keys are token ids from 0 to {}.",
                              key.substr(0, 40), vocab_size - 1));
    }
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100)) {
      return fail(fmt::format("`logit_bias` of token {} must be a number from -100 to 100.", id));
    }
    sampling.logit_bias.emplace_back(id, value.get<float>());
  }
}

ApiError too_many_stops(std::string_view field, size_t count, size_t most) {
  return invalid_value(
      field, fmt::format("`{}` has {} texts; at most {} are allowed.", field, count, most));
}

void read_stop(FieldReader& fields, SamplingSpelling spelling, int64_t vocab_size,
               bool may_draw_nothing, SamplingFields& result) {
  StopConditions& stop = result.stop;
  const Json* const stop_field = fields.find(Body::kSampling["stop"]);
  const bool has_stop = stop_field != nullptr && *stop_field != "";
  if (auto texts = has_stop ? fields.strings(Body::kSampling["stop"]) : std::nullopt) {
    if (texts->size() > request::kMaxStopTexts) {
      fields.fail(too_many_stops(fields.name_of("stop"), texts->size(), request::kMaxStopTexts));
    }
    if (std::find(texts->begin(), texts->end(), "") != texts->end()) {
      fields.fail(
          invalid_value(fields.name_of("stop"),
                        fmt::format("`{}` may not hold an empty string.", fields.name_of("stop"))));
    }
    for (const std::string& text : *texts) {
      if (text.size() <= request::kMaxStopTextBytes) continue;
      fields.fail(
          invalid_value(fields.name_of("stop"),
                        fmt::format("`stop` has a text of {} bytes; at most {} are allowed.",
                                    text.size(), request::kMaxStopTextBytes)));
    }
    stop.texts = std::move(*texts);
  }
  if (auto regexes = fields.strings(Body::kSampling["stop_regex"])) {
    result.stop_regex_name = fields.name_of("stop_regex");
    if (regexes->size() > request::kMaxStopPatterns) {
      fields.fail(invalid_value(result.stop_regex_name,
                                fmt::format("`stop_regex` has {} patterns; at most {} are allowed.",
                                            regexes->size(), request::kMaxStopPatterns)));
    }
    result.stop_regexes = std::move(*regexes);
  }
  if (auto ids =
          fields.token_ids(Body::kSampling["stop_token_ids"], vocab_size, /*skip_nulls=*/true)) {
    if (ids->size() > request::kMaxStopTokens) {
      fields.fail(invalid_value(fields.name_of("stop_token_ids"),
                                fmt::format("`stop_token_ids` has {} ids; at most {} are allowed.",
                                            ids->size(), request::kMaxStopTokens)));
    }
    stop.token_ids = std::move(*ids);
  }
  stop.ignore_eos = fields.flag(Body::kSampling["ignore_eos"]);
  // An option of vLLM: the output includes the stop text.
  const bool keeps_stop = fields.flag(Body::kSampling["include_stop_str_in_output"]);
  stop.keep_stop_text = fields.flag(Body::kSampling["no_stop_trim"]) || keeps_stop;
  const bool native = spelling == SamplingSpelling::kNative;
  const Field& min_field =
      native ? Body::kNativeLimits["min_new_tokens"] : Body::kLimits["min_tokens"];
  const std::string_view min_name = min_field;
  stop.min_new_tokens = fields.integer_or_preset(min_field);

  // If several limits are given, the last name in this list takes precedence.
  std::vector<std::string_view> max_names = {Body::kNativeLimits["max_new_tokens"]};
  if (!native) max_names = {Body::kLimits["max_tokens"], Body::kLimits["max_completion_tokens"]};
  if (spelling == SamplingSpelling::kResponses) {
    max_names.emplace_back(Body::kResponses["max_output_tokens"]);
  }
  const int64_t fewest = native || may_draw_nothing ? 0 : 1;
  std::string_view max_name =
      spelling == SamplingSpelling::kOpenAi ? max_names.front() : max_names.back();
  for (const std::string_view name : max_names) {
    const Json* const value = fields.find(name);
    if (value == nullptr) continue;
    max_name = name;
    result.max_tokens_unlimited = is_minus_one(value);
    result.max_tokens = result.max_tokens_unlimited ? std::nullopt : fields.integer(name, fewest);
  }
  result.max_tokens_name = fields.name_of(max_name);
  if (result.max_tokens && stop.min_new_tokens > *result.max_tokens) {
    fields.fail(invalid_value(fields.name_of(min_name),
                              fmt::format("`{}` is {}, more than `{}` = {}.", min_name,
                                          stop.min_new_tokens, max_name, *result.max_tokens)));
  }
}

void refuse_unserved(FieldReader& fields) {
  for (const char* const name : {"custom_logit_processor", "allowed_token_ids", "bad_words"}) {
    const Json* const value = fields.find(name);
    if (value == nullptr || (value->is_array() && value->empty())) continue;
    fields.fail(unsupported_parameter(fields.name_of(name)));
  }
}

}  // namespace

SamplingFields read_sampling_fields(FieldReader& fields, SamplingSpelling spelling,
                                    const ModelInfo& model, bool may_draw_nothing) {
  SamplingFields result;
  result.sampling = model.default_sampling;
  refuse_unserved(fields);
  read_numbers(fields, result.sampling);
  read_logit_bias(fields, model.vocab_size, result.sampling);
  read_stop(fields, spelling, model.vocab_size, may_draw_nothing, result);
  const std::string_view seed = spelling == SamplingSpelling::kNative
                                    ? Body::kNativeLimits["sampling_seed"]
                                    : Body::kLimits["seed"];
  if (!is_minus_one(fields.find(seed))) result.sampling.seed = fields.bits(seed);
  result.num_choices = fields.integer_or_preset(Body::kChoices["n"]);
  result.stream_interval = fields.integer(Body::kSampling["stream_interval"]);
  result.skip_special_tokens = fields.flag(Body::kSampling["skip_special_tokens"]);
  // This field only concerns slow tokenizers: it is checked and has no effect checked, no effect.
  fields.boolean(Body::kSampling["spaces_between_special_tokens"]);
  return result;
}

std::optional<ApiError> check_stop_texts(const StopConditions& stop, const AnswerOptions& answers,
                                         std::string_view field) {
  if (std::ssize(stop.texts) <= answers.max_stop) return std::nullopt;
  return too_many_stops(field, stop.texts.size(), static_cast<size_t>(answers.max_stop));
}

std::optional<ApiError> check_limits(std::span<const Request> requests,
                                     const AnswerOptions& answers, const LimitedFields& fields) {
  for (const Request& request : requests) {
    if (auto error = check_stop_texts(request.stop, answers, fields.stop)) return error;
    const int32_t prompt_top = request.prompt_logprobs ? request.prompt_logprobs->top : 0;
    const int32_t top = std::max(request.top_logprobs, prompt_top);
    if (top > answers.max_logprobs) {
      return invalid_value(fields.logprobs,
                           fmt::format("`{}` is {}; this server shows at most {}.", fields.logprobs,
                                       top, answers.max_logprobs));
    }
  }
  return std::nullopt;
}

Result<SamplingParams> read_sampling_defaults(std::string_view json, SamplingParams otherwise) {
  constexpr std::array<std::string_view, 7> kNames = {
      "temperature",       "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
      "repetition_penalty"};
  Json object;
  if (const auto error = parse_json_object(json, object, "The JSON object of sampling defaults")) {
    return invalid_argument(error->message + R"( Write one as '{"temperature": 0.6}'.)");
  }
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(kNames, name) == kNames.end()) {
      return invalid_argument(fmt::format("`{}` cannot be preset; these can: {}",
                                          printable(name, 40), fmt::join(kNames, ", ")));
    }
  }
  FieldReader fields(object);
  read_numbers(fields, otherwise);
  if (fields.error()) return invalid_argument(fields.error()->message);
  return otherwise;
}

std::optional<ApiError> fit_to_context(SamplingFields& fields, int64_t prompt_tokens,
                                       std::optional<int64_t> default_tokens,
                                       int64_t context_length, MaxTokensOverflow overflow,
                                       std::string_view prompt_param) {
  const int64_t room = context_length - prompt_tokens;
  const int64_t wanted = fields.max_tokens.value_or(1);
  const bool prompt_fits = room > 0 || (room == 0 && wanted == 0);
  if (!prompt_fits || (wanted > room && overflow != MaxTokensOverflow::kClamp)) {
    return context_overflow({.input_tokens = prompt_tokens,
                             .output_tokens = wanted,
                             .context_length = context_length,
                             .input_fits = prompt_fits},
                            fields.max_tokens_name, prompt_param);
  }
  const int64_t otherwise =
      fields.max_tokens_unlimited ? room : std::min(default_tokens.value_or(room), room);
  fields.stop.max_new_tokens = fields.max_tokens ? std::min(*fields.max_tokens, room) : otherwise;
  fields.stop.min_new_tokens = std::min(fields.stop.min_new_tokens, fields.stop.max_new_tokens);
  return std::nullopt;
}

std::optional<ApiError> StopPatterns::add(SamplingFields& fields) {
  const std::string& name = fields.stop_regex_name;
  size_t num_states = 0;
  for (size_t i = 0; i < fields.stop_regexes.size(); ++i) {
    const std::string& regex = fields.stop_regexes[i];
    auto known = compiled_.find(regex);
    if (known == compiled_.end()) {
      if (compiled_.size() == kMostInCall) {
        return invalid_value(name, fmt::format("`{}` has more than {} different patterns in one "
                                               "call; send the prompts in several.",
                                               name, kMostInCall));
      }
      auto pattern = StopPattern::compile(regex);
      if (!pattern.ok()) {
        return invalid_value(
            name, fmt::format("`{}`, number {}: {}.", name, i + 1, pattern.status().message()));
      }
      known = compiled_.emplace(regex, *std::move(pattern)).first;
    }
    num_states += known->second->num_states();
    if (num_states > StopPattern::kMaxStates) {
      return invalid_value(name, fmt::format("`{}` has patterns of more than {} states together; "
                                             "use fewer, or smaller repeat counts.",
                                             name, StopPattern::kMaxStates));
    }
    fields.stop.patterns.push_back(known->second);
  }
  return std::nullopt;
}

}  // namespace heddle::server

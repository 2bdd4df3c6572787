// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options_sampling.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::tools {

void declare_sampling_options(Options& options, SamplingSettings& settings,
                              std::string_view heading) {
  options.heading(heading);
  options.value("--max-tokens,--max-new-tokens", &settings.max_tokens, ranges::kCount,
                "Tokens of an answer, at most");
  options.value("--temperature", &settings.temperature, ranges::kNotNegative,
                "0: always the most likely token");
  options.value("--top-p", &settings.top_p, ranges::kProbability,
                "Smallest set of tokens with this much probability; 0: the most likely token");
  options.value("--top-k", &settings.top_k, ranges::kTopK,
                "This many most likely tokens; 0 or -1: all");
  options.value("--min-p", &settings.min_p, ranges::kProbability,
                "Drop what is less likely than this share of the best");
  options.value("--frequency-penalty", &settings.frequency_penalty, ranges::kPenalty,
                "From -2 to 2");
  options.value("--presence-penalty", &settings.presence_penalty, ranges::kPenalty, "From -2 to 2");
  options.value("--repetition-penalty", &settings.repetition_penalty, ranges::kRepetitionPenalty,
                "Above 0, at most 2");
  options.value("--seed", &settings.seed, "The same seed draws the same tokens");
  options.value("--stop", &settings.stop, "End before this text; may be repeated");
  options.flag("--ignore-eos", &settings.ignore_eos, "Go on after the model says it is done");
}

SamplingParams sampling_of(const SamplingSettings& settings, const ModelInfo& model) {
  SamplingParams sampling = model.default_sampling;
  const auto take = [](const auto& given, auto& target) {
    if (given) target = *given;
  };
  take(settings.temperature, sampling.temperature);
  take(settings.top_p, sampling.top_p);
  take(settings.top_k, sampling.top_k);
  take(settings.min_p, sampling.min_p);
  take(settings.frequency_penalty, sampling.frequency_penalty);
  take(settings.presence_penalty, sampling.presence_penalty);
  take(settings.repetition_penalty, sampling.repetition_penalty);
  if (settings.seed) sampling.seed = settings.seed;
  return sampling;
}

Result<Request> make_request(const SamplingSettings& settings, const ModelInfo& model,
                             std::vector<TokenId> prompt, int64_t default_tokens) {
  const int64_t room = model.context_length - static_cast<int64_t>(prompt.size());
  if (room <= 0) {
    return invalid_argument(
        fmt::format("the prompt has {} tokens and the context {}: nothing is left "
                    "for an answer",
                    prompt.size(), model.context_length));
  }
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = sampling_of(settings, model);
  request.stop.max_new_tokens = settings.max_tokens.value_or(std::min(default_tokens, room));
  request.stop.texts = settings.stop;
  request.stop.ignore_eos = settings.ignore_eos;
  request.adapter = settings.adapter;
  return request;
}

}  // namespace heddle::tools

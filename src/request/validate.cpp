// SPDX-License-Identifier: Apache-2.0
#include "request/validate.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace heddle::request {
namespace {

Status outside(std::string_view field, double value, std::string_view range) {
  return invalid_argument(fmt::format("{} is {:g}; it must be {}", field, value, range));
}

Status check_token(std::string_view field, size_t index, TokenId token, int64_t vocab_size) {
  if (token >= 0 && token < vocab_size) return {};
  return invalid_argument(fmt::format("{}[{}] is {}; token ids of this model go from 0 to {}",
                                      field, index, token, vocab_size - 1));
}

// The comparison is false for NaN.
bool within(float value, float low, float high) { return value >= low && value <= high; }

Status check_size(std::string_view field, size_t size, size_t limit) {
  if (size <= limit) return {};
  return invalid_argument(
      fmt::format("{} has {} entries; at most {} are allowed", field, size, limit));
}

// A device applies the biases in parallel, so the order of duplicates would be undefined.
Status check_distinct(const std::vector<std::pair<TokenId, float>>& logit_bias) {
  std::vector<TokenId> tokens;
  for (const auto& [token, bias] : logit_bias) tokens.push_back(token);
  std::ranges::sort(tokens);
  const auto twice = std::ranges::adjacent_find(tokens);
  if (twice == tokens.end()) return {};
  return invalid_argument(
      fmt::format("logit_bias names token {} twice; name it once, with the sum", *twice));
}

}  // namespace

Status validate_sampling(const SamplingParams& sampling, int64_t vocab_size) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature)) {
    return outside("temperature", sampling.temperature, "a finite number, 0 or more");
  }
  if (!within(sampling.top_p, 0, 1)) return outside("top_p", sampling.top_p, "from 0 to 1");
  if (sampling.top_k < -1) {
    return outside("top_k", sampling.top_k, "-1 or 0 (off) or at least 1");
  }
  if (!within(sampling.min_p, 0, 1)) return outside("min_p", sampling.min_p, "from 0 to 1");
  if (!within(sampling.frequency_penalty, -2, 2)) {
    return outside("frequency_penalty", sampling.frequency_penalty, "from -2 to 2");
  }
  if (!within(sampling.presence_penalty, -2, 2)) {
    return outside("presence_penalty", sampling.presence_penalty, "from -2 to 2");
  }
  if (!within(sampling.repetition_penalty, static_cast<float>(kMinRepetitionPenalty),
              static_cast<float>(kMaxRepetitionPenalty))) {
    return outside("repetition_penalty", sampling.repetition_penalty, "from 0.01 to 2");
  }
  HEDDLE_RETURN_IF_ERROR(check_size("logit_bias", sampling.logit_bias.size(), kMaxLogitBiases));
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return invalid_argument(
          fmt::format("logit_bias names token {}; token ids of this model go from 0 to {}", token,
                      vocab_size - 1));
    }
    if (!within(bias, -100, 100)) {
      return outside(fmt::format("logit_bias of token {}", token), bias, "from -100 to 100");
    }
  }
  return check_distinct(sampling.logit_bias);
}

Status validate_stop(const StopConditions& stop, int64_t vocab_size) {
  if (stop.max_new_tokens < 0) {
    return invalid_argument(
        fmt::format("max_new_tokens is {}; it must be 0 or more", stop.max_new_tokens));
  }
  if (stop.min_new_tokens < 0 || stop.min_new_tokens > stop.max_new_tokens) {
    return invalid_argument(
        fmt::format("min_new_tokens is {}; it must be from 0 to max_new_tokens = {}",
                    stop.min_new_tokens, stop.max_new_tokens));
  }
  HEDDLE_RETURN_IF_ERROR(check_size("stop", stop.texts.size(), kMaxStopTexts));
  for (size_t i = 0; i < stop.texts.size(); ++i) {
    if (stop.texts[i].empty()) {
      return invalid_argument(fmt::format("stop[{}] is empty; a stop text needs a character", i));
    }
    if (stop.texts[i].size() > kMaxStopTextBytes) {
      return invalid_argument(fmt::format("stop[{}] has {} bytes; at most {} are allowed", i,
                                          stop.texts[i].size(), kMaxStopTextBytes));
    }
  }
  HEDDLE_RETURN_IF_ERROR(check_size("stop_regex", stop.patterns.size(), kMaxStopPatterns));
  size_t num_states = 0;
  for (const auto& pattern : stop.patterns) {
    if (pattern == nullptr) return invalid_argument("stop_regex has a pattern that is null");
    num_states += pattern->num_states();
  }
  if (num_states > StopPattern::kMaxStates) {
    return invalid_argument(fmt::format("stop_regex needs {} states; its patterns may have {}",
                                        num_states, StopPattern::kMaxStates));
  }
  HEDDLE_RETURN_IF_ERROR(check_size("stop_token_ids", stop.token_ids.size(), kMaxStopTokens));
  for (size_t i = 0; i < stop.token_ids.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(check_token("stop_token_ids", i, stop.token_ids[i], vocab_size));
  }
  return {};
}

Status validate_request(const Request& request, const RequestLimits& limits) {
  if (request.id.empty()) return invalid_argument("the request has no id");
  if (request.id.size() > kMaxIdBytes) {
    return invalid_argument(fmt::format("the request's id has {} bytes; at most {} are allowed",
                                        request.id.size(), kMaxIdBytes));
  }
  if (request.prompt.empty())
    return invalid_argument("prompt is empty; it needs at least one token");
  HEDDLE_RETURN_IF_ERROR(validate_stop(request.stop, limits.vocab_size));

  // Written as a difference: max_new_tokens comes from a client, and a sum could overflow.
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t room = limits.context_length - prompt_tokens;
  if (request.stop.max_new_tokens > room) {
    return invalid_argument(fmt::format(
        "this model's maximum context length is {} tokens, but the request needs more: {} in the "
        "prompt and max_new_tokens = {}; shorten the prompt{}",
        limits.context_length, prompt_tokens, request.stop.max_new_tokens,
        room > 0 ? fmt::format(" or lower max_new_tokens to {}", room) : ""));
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(check_token("prompt", i, request.prompt[i], limits.vocab_size));
  }
  HEDDLE_RETURN_IF_ERROR(validate_sampling(request.sampling, limits.vocab_size));
  if (request.top_logprobs < 0 || request.top_logprobs > kMaxTopLogprobs) {
    return invalid_argument(fmt::format("top_logprobs is {}; it must be from 0 to {}",
                                        request.top_logprobs, kMaxTopLogprobs));
  }
  if (request.top_logprobs > 0 && !request.return_logprobs) {
    return invalid_argument(
        fmt::format("top_logprobs is {}, but logprobs were not asked for", request.top_logprobs));
  }
  if (request.prompt_logprobs) {
    const auto [from, top] = *request.prompt_logprobs;
    if (from < 0 || from > prompt_tokens) {
      return invalid_argument(
          fmt::format("prompt_logprobs.from is {}; it must be from 0 to the prompt's {} tokens",
                      from, prompt_tokens));
    }
    if (top < 0 || top > kMaxTopLogprobs) {
      return invalid_argument(
          fmt::format("prompt_logprobs.top is {}; it must be from 0 to {}", top, kMaxTopLogprobs));
    }
  }
  if (request.logprob_tokens.size() > kMaxLogprobTokens) {
    return invalid_argument(fmt::format("logprob_tokens has {} tokens; at most {} are allowed",
                                        request.logprob_tokens.size(), kMaxLogprobTokens));
  }
  for (size_t i = 0; i < request.logprob_tokens.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(
        check_token("logprob_tokens", i, request.logprob_tokens[i], limits.vocab_size));
  }
  if (request.choice_index < 0 || request.choice_index >= kMaxChoices) {
    return invalid_argument(fmt::format("choice_index is {}; it must be from 0 to {}",
                                        request.choice_index, kMaxChoices - 1));
  }
  return {};
}

}  // namespace heddle::request

// SPDX-License-Identifier: Apache-2.0
// The fields for sampling and stop conditions, in the spelling of each API.
//
// Threading: free functions without state; a StopPatterns is confined to one worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/engine.h>
#include <heddle/request.h>
#include <heddle/stop_pattern.h>

#include "server/call/answer_options.h"
#include "server/call/field_reader.h"

namespace heddle::server {

enum class SamplingSpelling {
  kOpenAi,     // max_completion_tokens or max_tokens, min_tokens, seed
  kResponses,  // as kOpenAi, but max_output_tokens overrides both limits
  kNative,     // max_new_tokens, min_new_tokens, sampling_seed; the limit may be 0
};

struct SamplingFields {
  SamplingParams sampling;
  StopConditions stop;
  std::vector<std::string> stop_regexes;  // StopPatterns compiles them to patterns in `stop`
  std::string stop_regex_name;            // the field with the regexes
  // Requested limit; fit_to_context() then sets stop.max_new_tokens.
  std::optional<int64_t> max_tokens;
  bool max_tokens_unlimited = false;  // -1 was requested: as many tokens as fit into the context
  std::string max_tokens_name;        // the field with the limit, or the one that would have it
  int64_t num_choices = 1;
  std::optional<int64_t> stream_interval;
  bool skip_special_tokens = true;
};

// Reads the fields. Absent fields get the model's defaults, and so do values that other servers and
// their clients use for "unset": a limit of -1 is the rest of the context, a seed of -1 none, a
// `top_k` of 0 or -1 all tokens, a `stop` of "" no text. Errors are left in `fields`, also for
// features that this release does not support (custom processors, lists of words and ids).
// Constraints are read by answer_form.h. With `may_draw_nothing` the limit in OpenAI's spelling may
// be 0, too.
SamplingFields read_sampling_fields(FieldReader& fields, SamplingSpelling spelling,
                                    const ModelInfo& model, bool may_draw_nothing = false);

// `otherwise`, overridden by the values in a JSON object: temperature, top_p, top_k, min_p and the
// penalties. Error: kInvalidArgument, naming the wrong field.
Result<SamplingParams> read_sampling_defaults(std::string_view json, SamplingParams otherwise);

// The names of a route's fields that AnswerOptions limits, for the errors of check_limits().
struct LimitedFields {
  std::string_view stop = "stop";
  std::string_view logprobs = "top_logprobs";
};

// The error if there are more stop texts than the server allows. `field` is their name in the
// request.
std::optional<ApiError> check_stop_texts(const StopConditions& stop, const AnswerOptions& answers,
                                         std::string_view field);

// The error if the requests of a call ask for more stop texts or alternatives than the server
// allows.
std::optional<ApiError> check_limits(std::span<const Request> requests,
                                     const AnswerOptions& answers, const LimitedFields& fields);

// Sets the number of tokens that may follow a prompt: the requested one, else `default_tokens` or,
// without that, the rest of the context. Error: context_length_exceeded, unless `overflow` allows
// cutting the requested number to what fits.
std::optional<ApiError> fit_to_context(SamplingFields& fields, int64_t prompt_tokens,
                                       std::optional<int64_t> default_tokens,
                                       int64_t context_length, MaxTokensOverflow overflow,
                                       std::string_view prompt_param);

// Compiles the `stop_regex` texts of a call's prompts, each distinct one once.
class StopPatterns {
 public:
  static constexpr size_t kMostInCall = 64;  // most distinct regexes in a call

  // Adds the compiled regexes of `fields` to its stop conditions. Cost: StopPattern::compile() for
  // each new one. Error: invalid_value, with the compiler's message.
  std::optional<ApiError> add(SamplingFields& fields);

 private:
  std::map<std::string, std::shared_ptr<const StopPattern>, std::less<>> compiled_;
};

}  // namespace heddle::server

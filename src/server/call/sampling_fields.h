// SPDX-License-Identifier: Apache-2.0
// The fields that say how to draw tokens and when to stop, as both families of APIs spell them.
//
// Threading: free functions without state; StopPatterns is confined to a worker.
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
  kResponses,  // as kOpenAi; max_output_tokens goes before both limits
  kNative,     // max_new_tokens, min_new_tokens, sampling_seed; the limit may be 0
};

struct SamplingFields {
  SamplingParams sampling;
  StopConditions stop;
  std::vector<std::string> stop_regexes;  // become patterns of `stop` by StopPatterns
  std::string stop_regex_name;            // the field they came from
  std::optional<int64_t> max_tokens;      // as asked; fit_to_context() settles stop.max_new_tokens
  bool max_tokens_unlimited = false;      // -1 was asked: all that the context has room for
  std::string max_tokens_name;            // the field it came from, or would
  int64_t num_choices = 1;
  std::optional<int64_t> stream_interval;
  bool skip_special_tokens = true;
};

// Absent fields take the model's defaults. So do values by which other servers and their clients
// say nothing: a limit of -1 is the rest of the context, a seed of -1 none, a `top_k` of 0 or -1
// all tokens, a `stop` of "" no text. Errors stay in `fields`; what this release does not
// serve (custom processors, lists of words and ids) is one. Forms of answers are answer_form.h's.
// With `may_draw_nothing` the limit of OpenAI's spelling may be 0, too.
SamplingFields read_sampling_fields(FieldReader& fields, SamplingSpelling spelling,
                                    const ModelInfo& model, bool may_draw_nothing = false);

// `otherwise` with what a JSON object says: temperature, top_p, top_k, min_p and the penalties.
// Error: kInvalidArgument, with the field that is wrong.
Result<SamplingParams> read_sampling_defaults(std::string_view json, SamplingParams otherwise);

// The fields of a route that AnswerOptions limits further, as check_limits() names them.
struct LimitedFields {
  std::string_view stop = "stop";
  std::string_view logprobs = "top_logprobs";
};

// Whether these are more stop texts than the server allows. `field` is what the request calls them.
std::optional<ApiError> check_stop_texts(const StopConditions& stop, const AnswerOptions& answers,
                                         std::string_view field);

// Whether the requests of a call ask for more stop texts or alternatives than the server allows.
std::optional<ApiError> check_limits(std::span<const Request> requests,
                                     const AnswerOptions& answers, const LimitedFields& fields);

// Settles how many tokens may come after a prompt: what was asked, else `default_tokens` or, when
// that is absent, the rest of the context. Error: context_length_exceeded, unless `overflow` cuts
// what was asked to what fits.
std::optional<ApiError> fit_to_context(SamplingFields& fields, int64_t prompt_tokens,
                                       std::optional<int64_t> default_tokens,
                                       int64_t context_length, MaxTokensOverflow overflow,
                                       std::string_view prompt_param);

// The patterns that the `stop_regex` of a call's prompts compile to, each once.
class StopPatterns {
 public:
  static constexpr size_t kMostInCall = 64;  // different ones

  // Adds those of `fields` to its stop conditions. Cost: StopPattern::compile() for each that was
  // not met before. Error: invalid_value, in the words of the compiler.
  std::optional<ApiError> add(SamplingFields& fields);

 private:
  std::map<std::string, std::shared_ptr<const StopPattern>, std::less<>> compiled_;
};

}  // namespace heddle::server

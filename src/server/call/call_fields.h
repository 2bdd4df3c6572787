// SPDX-License-Identifier: Apache-2.0
// Fields that every generating API shares: the model's name, the request id, streaming, features
// that this release does not serve, the size of the answer; and those that say when a request runs
// and with which others it shares the cache (docs/scheduling.md, docs/hybrid-cache.md):
//
//   priority         integer; header x-priority where the body has none
//   ttft_slo_ms      first token wanted within
//   deadline_ms      ends with an error after; the header x-request-timeout-ms is the same, and of
//                    both the shorter one counts
//   routing_key      text that `routing-key` groups by
//   user             text; the tenant, unless --fair-key says otherwise
//   cache_salt, extra_key
//                    texts; only requests with the same pair share cached tokens
//
// Threading: free functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/request.h>

#include "server/call/api_adapter.h"
#include "server/call/field_reader.h"

namespace heddle::server {

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // running usage on each chunk
};

// The form of an answer, as far as the two completions share it; apart from the request so that
// recorded events can test an adapter.
struct OpenAiAnswerOptions {
  std::string id;
  std::string model;
  int64_t created = 0;
  std::string weight_version = "default";
  size_t num_choices = 1;  // over all prompts, prompt-major
  StreamOptions streaming;
  bool logprobs = false;
  bool return_token_ids = false;
  bool cache_details = false;        // in the usage
  const TextCodec* codec = nullptr;  // outlives the adapter
};

// All but `num_choices` and `logprobs`, whose fields are each API's own; and the call's id, stream
// and no_logs. Errors stay in `fields`.
OpenAiAnswerOptions read_openai_answer(FieldReader& fields, const CallContext& context,
                                       PreparedCall& call);

// The name the answer shows: what the request says, else ours. Error in `fields`: model_not_found.
std::string read_model_name(FieldReader& fields, const CallContext& context);

// Takes `rid`, if there is one, as the call's id.
void read_request_id(FieldReader& fields, const CallContext& context, PreparedCall& call);

// The error of a call for too many answers, to be asked for before its prompts are copied for each
// of them. `field` is the one that makes them so many.
std::optional<ApiError> check_num_answers(const CallContext& context, size_t num_answers,
                                          std::string_view field);

// About the bytes of JSON that an API writes of one output token, and of one logprob, of the output
// or of a prompt: the token's own and each alternative's.
struct TokenJsonBytes {
  int64_t token = 0;
  int64_t logprob = 0;
};

// The bytes that an answer may take as JSON when every request runs to its limit: all of them in
// one body, or each of them in the last event of its own when `cumulative`, where every event
// repeats the ones before.
inline constexpr int64_t kMaxAnswerBytes = int64_t{2} << 30;
inline constexpr int64_t kMaxEventBytes = int64_t{64} << 20;  // clients take an event whole

// The error of a call whose answer could take more. `param` is the field that limits the tokens,
// `prompt_param` that which asks for logprobs of prompts: named where they alone take more.
std::optional<ApiError> check_answer_size(std::span<const Request> requests,
                                          const TokenJsonBytes& bytes, bool cumulative,
                                          std::string_view param,
                                          std::string_view prompt_param = {});

// The error of a stream whose first events, which have the logprobs of their prompts, could take
// more than kMaxEventBytes. `param` is the field that asks for them.
std::optional<ApiError> check_prompt_logprobs_size(std::span<const Request> requests,
                                                   const TokenJsonBytes& bytes,
                                                   std::string_view param);

// OpenAI's `metadata`, within OpenAI's limits; null without it. Errors stay in `fields`.
const nlohmann::ordered_json* read_metadata(FieldReader& fields);

// Refuses each named field that asks for something: null, false, "", [] and {} do not.
void refuse_fields(FieldReader& fields, std::initializer_list<std::string_view> names);

// Adapters, disaggregation, hidden states: of every API, not served yet. Background: of Responses
// alone.
void refuse_unserved_features(FieldReader& fields);

// Refuses `session_params`, which /generate alone has.
void refuse_sessions(FieldReader& fields);

// Refuses an `n` other than 1, for APIs whose answers have room for one.
void refuse_several_answers(FieldReader& fields);

// These texts are kept as long as the request, or longer.
inline constexpr size_t kMaxKeyBytes = 1024;

struct SchedulingFields {
  std::optional<int64_t> priority;
  std::string tenant;
  std::string routing_key;
  double ttft_slo_seconds = 0;
  double deadline_seconds = 0;
  std::string cache_namespace;

  void apply(Request& request) const;
};

// Errors stay in `fields`.
SchedulingFields read_scheduling_fields(FieldReader& fields, const CallContext& context);

// One text for a pair: different pairs have different texts, two empty ones the empty text.
[[nodiscard]] std::string cache_namespace(std::string_view cache_salt, std::string_view extra_key);

}  // namespace heddle::server

// SPDX-License-Identifier: Apache-2.0
// Fields that every generating API shares: the model's name, the request id, streaming, the size of
// the answer, features that this release does not support, and the fields for scheduling and cache
// sharing (docs/scheduling.md, docs/hybrid-cache.md):
//
//   priority         integer; if the body has none, the header x-priority
//   ttft_slo_ms      target for the time to the first token
//   deadline_ms      latest end, with an error after it; the header x-request-timeout-ms means the
//                    same, and the shorter of the two applies
//   routing_key      text by which the policy `routing-key` groups requests
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
  bool continuous_usage = false;  // each chunk carries the usage so far
};

// Properties of an answer that both completion APIs share. They are separate from the request so
// that an adapter can be tested with recorded events.
struct OpenAiAnswerOptions {
  std::string id;
  std::string model;
  int64_t created = 0;
  std::string weight_version = "default";
  size_t num_choices = 1;  // number of answers to all prompts, in prompt-major order
  StreamOptions streaming;
  bool logprobs = false;
  bool return_token_ids = false;
  bool cache_details = false;        // the usage includes details of the cache
  const TextCodec* codec = nullptr;  // converts tokens to text; outlives the adapter
};

// Reads these options except `num_choices` and `logprobs`, whose fields differ between the APIs;
// also the call's id, stream and no_logs. Errors are left in `fields`.
OpenAiAnswerOptions read_openai_answer(FieldReader& fields, const CallContext& context,
                                       PreparedCall& call);

// The model name that the answer shows: the request's, else the server's. It may be that of an
// adapter, alone or after the model's name and a colon. Error in `fields`: model_not_found.
std::string read_model_name(FieldReader& fields, const CallContext& context);

// Makes `rid`, if it is present, the call's id.
void read_request_id(FieldReader& fields, const CallContext& context, PreparedCall& call);

// The error of a call for too many answers. Checked before its prompts are copied for each answer.
// `field` is the field that determines the number.
std::optional<ApiError> check_num_answers(const CallContext& context, size_t num_answers,
                                          std::string_view field);

// Approximate bytes of JSON that an API writes for one output token and for one log probability.
// Log probabilities are those of output or prompt tokens and of each alternative.
struct TokenJsonBytes {
  int64_t token = 0;
  int64_t logprob = 0;
};

// Limits for an answer's JSON if every request runs to its output limit. kMaxAnswerBytes limits the
// body or stream with all answers. With `cumulative`, where every event repeats the ones before,
// kMaxEventBytes limits the last event of each answer.
inline constexpr int64_t kMaxAnswerBytes = int64_t{2} << 30;
// Limit for one event, which clients read as a whole.
inline constexpr int64_t kMaxEventBytes = int64_t{64} << 20;

// The error of a call whose answer could exceed the limit. `param` is the field that limits the
// tokens; `prompt_param`, the field that requests log probabilities of prompts, is named instead if
// these alone exceed it.
std::optional<ApiError> check_answer_size(std::span<const Request> requests,
                                          const TokenJsonBytes& bytes, bool cumulative,
                                          std::string_view param,
                                          std::string_view prompt_param = {});

// The error of a stream whose first events, which contain the log probabilities of prompts, could
// exceed kMaxEventBytes. `param` is the field that requests them.
std::optional<ApiError> check_prompt_logprobs_size(std::span<const Request> requests,
                                                   const TokenJsonBytes& bytes,
                                                   std::string_view param);

// OpenAI's `metadata`, checked against OpenAI's limits; null if it is missing. Errors are left in
// `fields`.
const nlohmann::ordered_json* read_metadata(FieldReader& fields);

// Refuses each of these fields unless its value requests nothing (null, false, "", [] or {}).
void refuse_fields(FieldReader& fields, std::initializer_list<std::string_view> names);

// Refuses features that this release does not support in any API (disaggregation, hidden states)
// and background calls, which only Responses has.
void refuse_unserved_features(FieldReader& fields);

// Refuses `session_params`, which only /generate has.
void refuse_sessions(FieldReader& fields);

// Refuses an `n` other than 1, for APIs whose answers can only contain one choice.
void refuse_several_answers(FieldReader& fields);

// Limit for texts that are stored as long as the request, or longer.
inline constexpr size_t kMaxKeyBytes = 1024;

struct SchedulingFields {
  std::optional<int64_t> priority;
  std::string tenant;
  std::string routing_key;
  double ttft_slo_seconds = 0;
  double deadline_seconds = 0;
  std::string cache_namespace;
  std::shared_ptr<const Adapter> adapter;  // null: none

  void apply(Request& request) const;
};

// Reads the fields of scheduling and cache sharing, and the adapter that `model` or `lora_path`
// names. Errors are left in `fields`.
SchedulingFields read_scheduling_fields(FieldReader& fields, const CallContext& context);

// One text for a pair of keys: different pairs give different texts, two empty keys the empty text.
[[nodiscard]] std::string cache_namespace(std::string_view cache_salt, std::string_view extra_key);

}  // namespace heddle::server

// SPDX-License-Identifier: Apache-2.0
// The input of the engine (Request) and its output (RequestEvent).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <heddle/adapter.h>
#include <heddle/status.h>
#include <heddle/stop_pattern.h>

namespace heddle {

using TokenId = int32_t;

class Constraint;  // defined in constraint.h

// Parameters for drawing tokens from logits. The defaults draw from the unmodified distribution.
//
// Order of operations on the fp32 logits: 1 masks for ids that the request's constraint forbids and
// for ids that may not end the text yet (min_new_tokens); 2 logit_bias; 3 repetition penalty; 4
// frequency and presence penalties; 5 temperature; 6 softmax; 7 top_k, then top_p, then min_p; 8
// draw. Penalties count only the output. Ties: the lower id first.
struct SamplingParams {
  float temperature = 1.0f;  // >= 0; below 1e-6 means greedy: the best logit after steps 1 to 4
  float top_p = 1.0f;  // [0, 1]: draws from the smallest set of best tokens whose mass before its
                       // last token is <= top_p
  int32_t top_k = -1;  // draws from this many best tokens; -1 or 0: all
  float min_p = 0.0f;  // [0, 1]: drops tokens less likely than min_p times the best
  float frequency_penalty = 0.0f;   // [-2, 2], per earlier occurrence in the output
  float presence_penalty = 0.0f;    // [-2, 2], once per token that occurs in the output
  float repetition_penalty = 1.0f;  // [0.01, 2], divides positive and multiplies negative logits
  std::vector<std::pair<TokenId, float>>
      logit_bias;  // added to a token's logit, [-100, 100]; each token at most once

  // The draw is a hash of (seed, position, choice), independent of the batch. Without a seed the
  // engine generates one.
  std::optional<uint64_t> seed;
};

// The conditions under which generation ends.
struct StopConditions {
  int64_t max_new_tokens = 128;  // most tokens of the output, >= 0
  // End-of-sequence and stop ids cannot be drawn before this many tokens.
  int64_t min_new_tokens = 0;
  std::vector<std::string> texts;  // texts that end the output when it contains one
  // Patterns that end the output when it matches one.
  std::vector<std::shared_ptr<const StopPattern>> patterns;
  // Token ids that end the output, besides the model's end-of-sequence ids.
  std::vector<TokenId> token_ids;
  bool ignore_eos = false;      // the model's end-of-sequence ids do not end the text
  bool keep_stop_text = false;  // the output includes the stop text or stop token that ended it
};

// Requests log probabilities of prompt tokens, with alternatives.
struct PromptLogprobs {
  // Index of the first token, at most the prompt's length; token 0 has no log probability.
  int64_t from = 0;
  int32_t top = 0;  // number of alternatives per token, 0 to 20
};

// A tenant's share and limits, where they differ from the defaults (docs/scheduling.md).
struct TenantTerms {
  double weight = 1;  // share relative to other tenants for the policy `fair`; above 0
  // Most running requests; none: SchedulingOptions::tenant_max_running.
  std::optional<int32_t> max_running;
  // Most waiting requests; none: SchedulingOptions::tenant_max_queued.
  std::optional<int32_t> max_queued;
};

struct Request {
  std::string id;               // id of the request, unique among live requests
  std::vector<TokenId> prompt;  // token ids of the prompt; not empty, each id within the vocabulary
  SamplingParams sampling;
  StopConditions stop;
  bool skip_special_tokens = true;  // text of the output excludes special tokens
  bool return_logprobs = false;     // true: events carry the log probability of each output token
  int32_t top_logprobs = 0;         // number of alternatives per output token, 0 to 20

  // Tokens whose log probabilities are reported as well, whatever their rank, at each output and
  // prompt token. At most 128, ids within the vocabulary.
  std::vector<TokenId> logprob_tokens;

  // Requests log probabilities of prompt tokens from the model's distribution: no temperature,
  // bias, penalty or constraint. Tokens before PromptLogprobs::from may come from the prefix cache;
  // later ones are computed.
  std::optional<PromptLogprobs> prompt_logprobs;

  int32_t choice_index = 0;  // index among n answers to one prompt; input of the draw

  // An adapter of this engine (Engine::load_adapter()) that changes the model for this request;
  // null: the model as it is. Requests share cached tokens only with those of an equal adapter.
  std::shared_ptr<const Adapter> adapter;

  // The constraint on the answer; null: any text. Shared with the caller, who may use it for other
  // requests concurrently.
  std::shared_ptr<const Constraint> constraint;

  // Fields for scheduling (docs/scheduling.md).
  std::optional<int64_t> priority;
  std::string tenant;           // tenant to which the policy `fair` charges the tokens
  TenantTerms tenant_terms;     // that tenant's terms, which apply from this request on
  std::string routing_key;      // key for the policy `routing-key`
  double ttft_slo_seconds = 0;  // target for the time to the first token; 0: no target
  // Latest end, in seconds after the arrival: then the request ends with kAbort and the text so
  // far, or with an error if there is no token yet; 0: no limit.
  double deadline_seconds = 0;
  double waited_seconds = 0;  // time from the request's arrival at the caller to submit();
                              // ttft_slo_seconds and deadline_seconds count from the arrival

  // Fields for the prefix cache (docs/hybrid-cache.md).
  std::string cache_namespace;           // only requests with the same namespace share tokens
  std::vector<int64_t> role_boundaries;  // ascending positions in `prompt` where messages begin:
                                         // likely forks
};

enum class FinishReason {
  kStop,    // end of sequence, a stop id or a stop text
  kLength,  // max_new_tokens was reached, or the context is full
  kAbort,   // cancelled, or timed out after its first token: Finish::error names the limit
  kError,   // an error, which Finish::error describes
};

struct Finish {
  FinishReason reason = FinishReason::kStop;
  std::optional<TokenId> matched_token;
  std::optional<std::string> matched_text;
  Status error;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // log softmax of the logits; for drawn tokens after temperature
  // The most likely tokens with their log probabilities, best first.
  std::vector<std::pair<TokenId, float>> top;
  std::vector<float> listed;  // logprobs of Request::logprob_tokens, in their order; -inf: masked
};

// Prompt tokens that were computed again, split by what would have avoided it. The sum is the
// distance from reused_tokens to the larger of matched_tokens and reused_tokens + eviction.
struct CacheLoss {
  int64_t eviction = 0;       // lost because recurrent states or pages were evicted
  int64_t missing_state = 0;  // lost because no state was ever stored where KV rows exist
  int64_t grid = 0;  // tokens after the last multiple of the snapshot grid or page size, where
                     // states or pages end
  int64_t last_token = 0;  // 1 if the whole prompt was cached: one token must be computed

  CacheLoss& operator+=(const CacheLoss& other) {
    eviction += other.eviction;
    missing_state += other.missing_state;
    grid += other.grid;
    last_token += other.last_token;
    return *this;
  }
};

// How much of a prompt was cached, as of its first prefill.
struct CacheReport {
  int64_t reused_tokens = 0;    // prompt tokens that were not computed again
  int64_t matched_tokens = 0;   // prompt tokens with cached KV rows; `lost` explains the difference
                                // to reused_tokens
  bool exact_repeat = false;    // the cache also had the result of the last prompt token
  double deferred_seconds = 0;  // time spent waiting for another request that computed the same
                                // prefix
  CacheLoss lost;
};

// Speculative decoding of a request so far. It changes the number of steps, never the answer.
struct DraftReport {
  int64_t verify_steps = 0;     // decode steps of the request, with drafts or without
  int64_t accepted_tokens = 0;  // drafts that were accepted
  int64_t rejected_tokens = 0;  // drafts that were rejected
  int64_t forced_tokens = 0;  // tokens that a grammar forced and that saved a step; not counted as
                              // drafts
};

// The output of one step for one request. Tokens and text are increments; text is complete UTF-8.
struct RequestEvent {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<uint32_t> text_ends;  // for each token: the end of its complete characters in `text`
  // One per token of this event; empty: the request asked for none.
  std::vector<TokenLogprob> logprobs;

  // Only in the request's first event: log probabilities of the prompt's tokens, beginning with
  // index PromptLogprobs::from, or 1 if that is 0. Fewer if the request ends before its prompt is
  // computed.
  std::vector<TokenLogprob> prompt_logprobs;

  std::optional<Finish> finish;  // set exactly once, in the last event

  // Number of weight updates (Engine::update_weights()) before these tokens were drawn.
  int64_t num_weight_updates = 0;

  // Totals of the request so far.
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens that were reused
  CacheReport cache;
  DraftReport drafts;
  int64_t num_retractions = 0;  // times the request was retracted and computed again

  // Seconds. queue_seconds: from submit() to the first step; first_token_seconds: from submit() to
  // the first token.
  double queue_seconds = 0;
  double first_token_seconds = 0;
  double elapsed_seconds = 0;
};

}  // namespace heddle

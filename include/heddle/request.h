// SPDX-License-Identifier: Apache-2.0
// The input of the engine (Request) and its output (RequestEvent).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <heddle/status.h>
#include <heddle/stop_pattern.h>

namespace heddle {

using TokenId = int32_t;

class Constraint;  // constraint.h

// How tokens are drawn from logits. The defaults draw from the unmodified distribution.
//
// Order of operations on the fp32 logits: 1 masks of ids that the request's constraint rules out
// and that may not end the text yet (min_new_tokens); 2 logit_bias; 3 repetition penalty; 4
// frequency and presence penalties; 5 temperature; 6 softmax; 7 top_k, then top_p, then min_p; 8
// draw. Penalties look at the output only. Ties: the lower id first.
struct SamplingParams {
  float temperature = 1.0f;  // >= 0; below 1e-6 means greedy: the best logit after steps 1 to 4
  float top_p = 1.0f;        // [0, 1]: smallest set whose mass before the last token is <= top_p
  int32_t top_k = -1;        // -1 or 0: off
  float min_p = 0.0f;        // [0, 1]: drops what is less likely than min_p times the best
  float frequency_penalty = 0.0f;   // [-2, 2], per earlier occurrence in the output
  float presence_penalty = 0.0f;    // [-2, 2], once per token that occurs in the output
  float repetition_penalty = 1.0f;  // [0.01, 2], divides positive and multiplies negative logits
  std::vector<std::pair<TokenId, float>>
      logit_bias;  // added to the logit, [-100, 100]; a token once

  // The draw is a hash of (seed, position, choice): the same whatever else is in the batch.
  // Without a seed the engine takes one from its own generator.
  std::optional<uint64_t> seed;
};

// When generation ends.
struct StopConditions {
  int64_t max_new_tokens = 128;    // >= 0
  int64_t min_new_tokens = 0;      // until then end-of-sequence and stop ids cannot be drawn
  std::vector<std::string> texts;  // ends when the output contains one
  std::vector<std::shared_ptr<const StopPattern>> patterns;  // or a match of one of these
  std::vector<TokenId> token_ids;  // beside the model's end-of-sequence ids
  bool ignore_eos = false;         // the model's end-of-sequence ids do not end the text
  bool keep_stop_text = false;     // leave what matched, text or token, in the output
};

// The tokens of a prompt whose log probabilities are wanted, and how many alternatives of each.
struct PromptLogprobs {
  int64_t from = 0;  // index of the first, at most the prompt's length; token 0 follows nothing and
                     // has none
  int32_t top = 0;   // 0 to 20
};

// The share and the limits of one tenant, where they are not those of all (docs/scheduling.md).
struct TenantTerms {
  double weight = 1;                   // above 0: its share beside those of others, for `fair`
  std::optional<int32_t> max_running;  // instead of SchedulingOptions::tenant_max_running
  std::optional<int32_t> max_queued;   // instead of tenant_max_queued
};

struct Request {
  std::string id;               // unique among live requests
  std::vector<TokenId> prompt;  // not empty, ids within the vocabulary
  SamplingParams sampling;
  StopConditions stop;
  bool skip_special_tokens = true;  // leave special tokens out of the text
  bool return_logprobs = false;     // logprob of each output token
  int32_t top_logprobs = 0;         // and of this many alternatives, 0 to 20

  // With logprobs, of the output or of the prompt: also those of these tokens, wherever they rank.
  // At most 128, ids within the vocabulary.
  std::vector<TokenId> logprob_tokens;

  // Logprobs of the prompt's own tokens, in the distribution that the model has for them: no
  // temperature, bias, penalty or constraint. The tokens before the first of them may come from
  // the prefix cache, those behind are computed.
  std::optional<PromptLogprobs> prompt_logprobs;

  int32_t choice_index = 0;  // which of n answers to one prompt; part of the draw

  // The form that the answer must have; null: any. Shared with the caller, who may use it for
  // other requests at the same time.
  std::shared_ptr<const Constraint> constraint;

  // Scheduling (docs/scheduling.md).
  std::optional<int64_t> priority;
  std::string tenant;           // whom `fair` charges
  TenantTerms tenant_terms;     // of that tenant, from this request on
  std::string routing_key;      // `routing-key` groups by it
  double ttft_slo_seconds = 0;  // first token wanted within; 0: none
  double deadline_seconds = 0;  // ends by then: with kAbort and the text so far, or with an error
                                // if there is no token yet; 0: none
  double waited_seconds = 0;    // between the caller's arrival and submit(); both limits above
                                // count from the arrival

  // Caching (docs/hybrid-cache.md).
  std::string cache_namespace;           // only requests with the same one share tokens
  std::vector<int64_t> role_boundaries;  // ascending positions in `prompt` where messages begin:
                                         // others are likely to fork there
};

enum class FinishReason {
  kStop,    // end of sequence, a stop id or a stop text
  kLength,  // max_new_tokens, or the context is full
  kAbort,   // cancelled, or out of time after its first token: then Finish::error says which limit
  kError,   // see Finish::error
};

struct Finish {
  FinishReason reason = FinishReason::kStop;
  std::optional<TokenId> matched_token;
  std::optional<std::string> matched_text;
  Status error;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // log softmax of the logits, of drawn tokens after temperature
  std::vector<std::pair<TokenId, float>> top;  // best first
  std::vector<float> listed;  // of Request::logprob_tokens, in their order; -inf: masked
};

// Prompt tokens that were computed again, by what would have saved them. The sum is what lies
// between reused_tokens and the deeper of matched_tokens and reused_tokens + eviction.
struct CacheLoss {
  int64_t eviction = 0;       // a recurrent state, or pages, that were kept once and given up
  int64_t missing_state = 0;  // a state where KV rows were there and none was ever kept
  int64_t grid = 0;        // states, or pages, that end anywhere: what lies beyond the last whole
                           // multiple of the snapshot grid, or of the page
  int64_t last_token = 0;  // 1 where the whole prompt was known: a token has to run

  CacheLoss& operator+=(const CacheLoss& other) {
    eviction += other.eviction;
    missing_state += other.missing_state;
    grid += other.grid;
    last_token += other.last_token;
    return *this;
  }
};

// How much of a prompt was there already, as of its first prefill.
struct CacheReport {
  int64_t reused_tokens = 0;   // not computed again
  int64_t matched_tokens = 0;  // the prompt agrees with kept KV rows this far; `lost` says why what
                               // lies between the two was computed again
  bool exact_repeat = false;   // not even the last token was computed
  double deferred_seconds = 0;  // waited for another request that computed the same prefix
  CacheLoss lost;
};

// Speculative decoding of a request so far. It never changes an answer, only how many steps it
// takes.
struct DraftReport {
  int64_t verify_steps = 0;     // that decoded, with drafts or without
  int64_t accepted_tokens = 0;  // drafts that were what the model drew
  int64_t rejected_tokens = 0;  // drafts that were not
  int64_t forced_tokens = 0;    // tokens that the answer's form forced and that took no step of
                                // their own; not among the drafts
};

// The output of one step for one request. Tokens and text are increments; text is complete UTF-8.
struct RequestEvent {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<uint32_t> text_ends;     // where in `text` ends what was certain with each token
  std::vector<TokenLogprob> logprobs;  // one per token of this event, if asked for

  // All in the request's first event: of the prompt's tokens from PromptLogprobs::from, or 1, on.
  // Fewer where the request ends before its prompt is computed.
  std::vector<TokenLogprob> prompt_logprobs;

  std::optional<Finish> finish;  // set exactly once, in the last event

  // How often the engine had exchanged its weights (Engine::update_weights()) when these tokens
  // were drawn.
  int64_t num_weight_updates = 0;

  // Totals so far.
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens that were not computed again
  CacheReport cache;
  DraftReport drafts;
  int64_t num_retractions = 0;  // it lost its memory to others and was computed again

  // Seconds; queue: from submit to the first step, first_token: from submit to the first token.
  double queue_seconds = 0;
  double first_token_seconds = 0;
  double elapsed_seconds = 0;
};

}  // namespace heddle

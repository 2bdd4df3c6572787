// SPDX-License-Identifier: Apache-2.0
// Sequence: one request on its way through the engine, with the scheduler's state of it.
//
// Prompt and output are stored in one vector, so that a step always computes a contiguous range of
// it, also when a retracted sequence is computed again from its first token.
//
// Threading:  filled in by the submitting thread, from then on confined to the engine thread.
// Invariants: num_computed <= tokens.size(); between steps every sequence has at least one token
//             that was not computed, except one that asked for no output and has been prefilled.
//             The scheduler assigns pages and state slot; a waiting sequence owns none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <heddle/constraint.h>
#include <heddle/request.h>

#include "request/prefix_hashes.h"

namespace heddle::request {

enum class SequenceStatus {
  kNew,       // not submitted to a scheduler yet
  kWaiting,   // owns no pages or slots
  kRunning,   // owns pages for all of its tokens and, in hybrid models, a state slot
  kEnding,    // released; a step in flight still uses its pages and slots
  kFinished,  // owns no pages or slots and never runs again
};

struct SequenceTimings {
  double submit_seconds = 0;
  double first_step_seconds = -1;   // when the first step was planned; negative: not yet
  double first_token_seconds = -1;  // when the first token was drawn; negative: not yet
};

struct Sequence {
  // `resolved_seed` is the request's seed or one chosen by the engine; `eos_token_ids` are the
  // model's.
  Sequence(int64_t sequence_id, Request source, uint64_t resolved_seed,
           std::span<const TokenId> eos_token_ids)
      : id(sequence_id),
        request(std::move(source)),
        seed(resolved_seed),
        num_prompt_tokens(static_cast<int64_t>(request.prompt.size())),
        cache_namespace(name_space_of(request, /*takes_long_rope=*/false)),
        prefix_hashes(request.prompt, cache_namespace),
        tokens(std::move(request.prompt)) {
    request.prompt.clear();
    next_scored = num_prompt_tokens;
    if (request.prompt_logprobs) next_scored = std::max<int64_t>(request.prompt_logprobs->from, 1);
    if (request.constraint != nullptr) {
      constraint = request.constraint->start();
      // The grammar allows no text at all.
      if (constraint->is_over()) request.stop.min_new_tokens = 0;
    }
    ending_tokens = request.stop.token_ids;
    if (!request.stop.ignore_eos) {
      ending_tokens.insert(ending_tokens.end(), eos_token_ids.begin(), eos_token_ids.end());
    }
    std::sort(ending_tokens.begin(), ending_tokens.end());
    ending_tokens.erase(std::unique(ending_tokens.begin(), ending_tokens.end()),
                        ending_tokens.end());
  }

  int64_t id = 0;
  Request request;  // the client's request; its prompt was moved into `tokens`
  uint64_t seed = 0;
  int64_t num_prompt_tokens = 0;
  std::string cache_namespace;         // sequences share cached prefixes only within a namespace
  PrefixHashes prefix_hashes;          // hashes of the prompt, and of output that the cache knows
  std::vector<TokenId> tokens;         // the prompt's tokens, then the output's
  std::vector<TokenId> ending_tokens;  // sorted; drawing one of these tokens ends the text

  // The scheduler writes the following fields.
  SequenceStatus status = SequenceStatus::kNew;
  bool takes_long_rope = false;  // rotated by the second rotary table; see
                                 // PlannedSequence::takes_long_rope
  int64_t num_computed = 0;      // the first tokens, whose KV rows and state exist
  std::vector<int32_t> pages;    // the page of token t is pages[t / page_size]
  int32_t state_slot = 0;        // working state slot; 0: none
  int32_t batch_slot = -1;       // batch slot; -1: the sequence does not run
  int32_t num_retractions = 0;
  int32_t num_preemptions = 0;
  int64_t next_scored = 0;  // first prompt token that still needs its log probability
  CacheReport cache_report;
  DraftReport draft_report;

  // The grammar's state after all output tokens, except one that ended the text. Null: any token
  // may follow.
  std::unique_ptr<ConstraintState> constraint;
  Status constraint_status;  // an error ends the request
  // Number of output tokens with which the grammar ended the answer; negative: not yet.
  int64_t ended_at = -1;

  SequenceTimings timings;

  [[nodiscard]] int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }

  [[nodiscard]] int64_t num_output_tokens() const { return num_tokens() - num_prompt_tokens; }

  [[nodiscard]] std::span<const TokenId> output_tokens() const {
    return std::span<const TokenId>(tokens).subspan(static_cast<size_t>(num_prompt_tokens));
  }

  // Appends a drawn token. With a constraint it either ends the text or is a part of it, by the
  // rule of fill_mask().
  void append(TokenId token) {
    if (constraint != nullptr) take_over(token);
    tokens.push_back(token);
  }

  // Sets a bit in `mask` for each token that may be drawn after `num_output` output tokens, all of
  // which the constraint has accepted: tokens that the grammar accepts as text, and tokens that end
  // the text if the grammar is complete and min_new_tokens is reached. Bits as in
  // ConstraintState::fill_mask(), at least one is set. Error: the constraint's.
  [[nodiscard]] Status fill_mask(int64_t num_output, std::span<uint32_t> mask) const {
    HEDDLE_RETURN_IF_ERROR(constraint->fill_text_mask(mask));
    if (!constraint->is_complete()) return ok_status();
    set_endings(mask, may_end(num_output));
    if (std::ranges::any_of(mask, [](uint32_t word) { return word != 0; })) return ok_status();
    // Either the answer must be longer and only end tokens may follow in the grammar, or no token
    // may follow and the request has no end tokens.
    HEDDLE_RETURN_IF_ERROR(constraint->fill_text_mask(mask));
    if (std::ranges::any_of(mask, [](uint32_t word) { return word != 0; })) return ok_status();
    return constraint->fill_mask(mask);
  }

  // Whether `token` would end the answer after `num_output` output tokens, by the constraint.
  [[nodiscard]] bool ends_form(int64_t num_output, TokenId token) const {
    return may_end(num_output) && ends_text(token);
  }

  // Number of tokens that both sequences have in common at their beginning. Both are in the same
  // namespace. Cost: that of PrefixHashes::common_prefix().
  [[nodiscard]] int64_t common_prefix(const Sequence& other) const {
    return prefix_hashes.common_prefix(tokens, other.prefix_hashes, other.tokens);
  }

  // Whether a sequence of `length` tokens needs the second rotary table while this one still uses
  // the first (StepLimits::short_rope_tokens).
  [[nodiscard]] bool outgrows(int64_t length, int64_t short_rope_tokens) const {
    return short_rope_tokens > 0 && length > short_rope_tokens && !takes_long_rope;
  }

  // Chooses the rotary table for the sequence's present length. May only be called while the
  // sequence owns no pages or state slots.
  void choose_rope(int64_t short_rope_tokens) {
    if (!outgrows(num_tokens(), short_rope_tokens)) return;
    takes_long_rope = true;
    cache_namespace = name_space_of(request, true);
    prefix_hashes = PrefixHashes(tokens, cache_namespace);
  }

  // Tokens still to be computed before the next one can be drawn.
  [[nodiscard]] int64_t num_pending() const { return num_tokens() - num_computed; }

  [[nodiscard]] bool wants_scores() const { return next_scored < num_prompt_tokens; }

  // Most tokens that may come from the cache: one token must be computed for logits to draw from,
  // and so must the tokens whose logits score a prompt token.
  [[nodiscard]] int64_t max_cached_tokens() const {
    return wants_scores() ? next_scored - 1 : num_tokens() - 1;
  }

  // The tokens in [begin, end) whose logits score the token after them, as the first one and their
  // number.
  [[nodiscard]] std::pair<int64_t, int64_t> scored_rows(int64_t begin, int64_t end) const {
    const int64_t first = std::max(begin, next_scored - 1);
    return {first, std::max<int64_t>(std::min(end, num_prompt_tokens - 1) - first, 0)};
  }

  // Whether the sequence decodes: it has output, and exactly its newest token is not computed yet.
  [[nodiscard]] bool decoding() const { return num_pending() == 1 && num_output_tokens() > 0; }

  // Whether the step that computes the last pending token draws another one.
  [[nodiscard]] bool wants_tokens() const { return request.stop.max_new_tokens > 0; }

  // KV rows of the sequence at its longest: the last drawn token is never computed.
  [[nodiscard]] int64_t max_stored_tokens() const {
    return num_prompt_tokens + std::max<int64_t>(request.stop.max_new_tokens, 1) - 1;
  }

  [[nodiscard]] bool ends_text(TokenId token) const {
    return std::binary_search(ending_tokens.begin(), ending_tokens.end(), token);
  }

  // Whether `token`, the last one of `num_output`, ended the text.
  [[nodiscard]] bool has_ended(int64_t num_output, TokenId token) const {
    if (constraint != nullptr) return num_output == ended_at;
    return num_output >= request.stop.min_new_tokens && ends_text(token);
  }

  // Tokens that may not be drawn next (min_new_tokens). Empty with a constraint, whose masks
  // exclude them.
  [[nodiscard]] std::span<const TokenId> forbidden_tokens() const {
    if (constraint != nullptr) return {};
    if (num_output_tokens() >= request.stop.min_new_tokens) return {};
    return ending_tokens;
  }

 private:
  // The namespace in the prefix cache. KV rows of one rotary table or adapter must not be reused
  // with another, so each has namespaces of its own. If a request's own namespace begins with the
  // mark, it gets a mark as well, so that it cannot equal a namespace of the second table or of an
  // adapter. The hash of an adapter has a fixed length, so that no namespace continues it.
  [[nodiscard]] static std::string name_space_of(const Request& of, bool takes_long_rope) {
    constexpr char kMark = '\x1f';
    const std::string& own = of.cache_namespace;
    if (!takes_long_rope && of.adapter == nullptr && !own.starts_with(kMark)) return own;
    const std::string adapter = of.adapter == nullptr ? "" : of.adapter->content_hash;
    return kMark + std::string(takes_long_rope ? "l" : "s") + std::to_string(adapter.size()) + ':' +
           adapter + own;
  }

  [[nodiscard]] bool may_end(int64_t num_output) const {
    return num_output >= request.stop.min_new_tokens && constraint->is_complete();
  }

  void set_endings(std::span<uint32_t> mask, bool value) const {
    for (const TokenId token : ending_tokens) {
      const auto word = static_cast<size_t>(token) / 32;
      const uint32_t bit = 1u << (static_cast<uint32_t>(token) % 32);
      if (token < 0 || token >= request.constraint->vocab_size()) continue;
      mask[word] = value ? mask[word] | bit : mask[word] & ~bit;
    }
  }

  void take_over(TokenId token) {
    if (ends_form(num_output_tokens(), token)) {
      ended_at = num_output_tokens() + 1;
      return;
    }
    if (constraint->accept_text(token) || constraint->accept(token)) return;
    if (!constraint_status.ok()) return;
    constraint_status = internal_error("a token was drawn that the answer's form does not allow");
  }
};

}  // namespace heddle::request

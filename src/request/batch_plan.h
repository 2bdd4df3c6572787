// SPDX-License-Identifier: Apache-2.0
// BatchPlan: the work of one step, decided by the scheduler and computed by the runner.
//
// A step may mix prefill (many new tokens of a sequence) and decode (one). A sequence writes only
// to its own pages and slots; pages before the first row it writes may be shared with other
// sequences.
//
// A plan holds values only: data of varying length is stored in arrays of the plan, and a sequence
// names its range of them. Values that do not change from step to step are sent once: a sequence's
// parameters when it starts in a batch slot (SlotStart), a page when it joins the sequence
// (PageUpdate). The runner keeps both by batch slot (batch_slots.h), so a decoding sequence costs
// the same at any length. After a failed step everything is sent again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <heddle/request.h>

namespace heddle::request {

// Elements [begin, begin + count) of an array of the plan.
struct PlanRange {
  int32_t begin = 0;
  int32_t count = 0;

  [[nodiscard]] bool empty() const { return count == 0; }
};

// Stands in a plan for a draft whose token only the runner knows: the runner made the draft after
// the sequence's last draw (StepOutput::drafts). All other tokens are >= 0.
inline constexpr TokenId kKeptDraft = -1;

// A copy of the recurrent state, taken when exactly `tokens` tokens of the sequence have been
// processed; `tokens` is in (context_tokens, context_tokens + rows]. `slot` is a snapshot slot: a
// state slot, or one of the separate ids if there are any (PoolSizes::num_snapshot_slots).
struct PlannedSnapshot {
  int64_t tokens = 0;
  int32_t slot = 0;

  // Also stores the hidden vector that the LM head reads, so that the next token can be drawn
  // without computation. Only if `tokens` is the end of the step's tokens.
  bool keep_hidden = false;
};

// Whether the sequence's draws depend on its output so far.
[[nodiscard]] inline bool penalises(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}

// A sequence starts in a batch slot: the parameters that stay the same while it runs there.
// Replaces everything that the runner kept for the slot, its pages included, except the token drawn
// last.
struct SlotStart {
  int64_t sequence_id = 0;
  int32_t batch_slot = 0;
  int32_t choice_index = 0;   // input of the draw: which of the request's answers this is
  int32_t adapter_slot = -1;  // slot of the request's adapter (Adapter::slot); -1: it has none
  uint64_t seed = 0;          // input of the draw: the resolved seed
  SamplingParams sampling;
  bool return_logprobs = false;
  int32_t top_logprobs = 0;         // alternatives reported for every drawn token, 0 to 20
  int32_t prompt_top_logprobs = 0;  // alternatives reported for every scored token

  // Lengths count prompt and output. Tokens from index num_prompt_tokens on are output, which
  // penalties read. A token with an index below `min_length` must not be one of `ending_tokens`.
  int64_t num_prompt_tokens = 0;
  int64_t min_length = 0;
  int64_t max_length = 0;  // length at which the sequence ends, prompt and output together

  PlanRange ending_tokens;  // range of BatchPlan::tokens, sorted: drawing one of these tokens ends
                            // the text

  PlanRange logprob_tokens;  // range of BatchPlan::tokens: Request::logprob_tokens, reported for
                             // drawn and scored tokens

  // Range of BatchPlan::tokens: the output tokens computed so far, for penalties. The runner
  // appends the tokens that later steps compute.
  PlanRange output_tokens;

  // Range of BatchPlan::tokens: all tokens computed so far, if a drafter reads texts
  // (StepLimits::drafter_reads_texts).
  PlanRange context;
};

// New pages of the sequence in a batch slot: they replace the entries of its page list from `first`
// on. The page of token t is entry t / page_size. The list of page table 0 covers the tokens of
// every step. The list of a table with a window (PoolSizes::windows) may lack the entries before
// the page of the first token that the step's first new token sees. Those are not read; all new
// rows have a page.
struct PageUpdate {
  int32_t batch_slot = 0;
  uint32_t table = 0;
  int32_t first = 0;
  PlanRange pages;  // range of BatchPlan::pages: the ids of the new pages
};

// Moves of pages and states before a step's first layer, in the order of execution. The memory of a
// released page or state may return to the system; its next user finds undefined contents.
enum class MoveKind : uint8_t {
  kReleasePage,      // releases page `from`
  kReleaseSnapshot,  // releases snapshot slot `from`
  kSave,             // copies state slot `from`, where a sequence ended, to snapshot slot `to`
  kReleaseState,     // releases state slot `from`, which may just have been saved
  kZero,             // zeroes state slot `to`, in which a sequence without context starts
  kRestore,          // copies snapshot slot `from` to state slot `to`: a sequence resumes
  kCopyPage,         // copies page `from` to page `to`: a sequence resumes inside a page
};

struct Move {
  MoveKind kind = MoveKind::kCopyPage;
  uint32_t table = 0;  // number of the page table, for moves of pages
  int32_t from = 0;
  int32_t to = 0;

  // Sort key: moves are carried out in ascending order of it.
  [[nodiscard]] std::pair<MoveKind, uint32_t> order() const { return {kind, table}; }
};

struct PlannedSequence {
  int64_t sequence_id = 0;  // repeated in the sequence's output
  int32_t batch_slot = 0;   // 0 to max_sequences - 1; reserved for the sequence while it runs

  // Range of BatchPlan::tokens: the tokens to compute in this step. It is empty only with
  // `hidden_slot` or `feeds_drawn_token`. With `feeds_drawn_token` one more token follows: the
  // token that an earlier step drew for this batch slot, which the host may not have seen yet. If
  // that token is one of the slot's ending tokens, or its draw failed, the sequence ended there.
  // Then the step leaves it out, its state, pages and batch slot stay unchanged, and its output
  // says `skipped`.
  PlanRange new_tokens;
  bool feeds_drawn_token = false;

  // The rows of this sequence are rotated by the second rotary table (longrope): it is longer than
  // StepLimits::short_rope_tokens, and all of its tokens were computed with this table.
  bool takes_long_rope = false;

  // Range of BatchPlan::tokens: guesses of the tokens that follow the new ones, a chain or a tree.
  // Only with `sample`. The runner draws the token after the last new one as usual. While the token
  // just drawn equals a draft that follows there, it moves to that draft and draws again, from the
  // logits that plain decoding would compute there. It stops after an ending token. So a step
  // yields one token more than it accepts drafts, and each is the token that plain decoding draws.
  // Afterwards the sequence is as if only its new tokens and the accepted drafts had been fed: KV
  // rows and snapshots beyond them are invalid, and penalties do not count rejected drafts. Either
  // all drafts are kKeptDraft and mean the first N kept drafts with their parents, or none is.
  PlanRange drafts;

  // The drafts are tokens that the answer's grammar forces (ConstraintState::forced_tokens()), not
  // a drafter's. Runners verify both alike; statistics tell them apart.
  bool drafts_are_forced = false;

  // Range of BatchPlan::draft_parents. By draft: the index of the earlier draft of this sequence
  // that it follows; -1: the last new token. Empty: the drafts are a chain, each follows the one
  // before it.
  PlanRange draft_parents;

  // How many drafts the runner should make after the sequence's draws (StepOutput::drafts); it may
  // make fewer. Only with `sample`. The sequence has pages for the draft slots after the step's
  // tokens (StepLimits::draft_slots).
  int32_t wanted_drafts = 0;

  // With `wanted_drafts`: the runner may keep the drafts' tokens to itself, so that nobody waits
  // for them. It keeps them until the sequence draws again.
  bool may_keep_drafts = false;

  // Without `sample`: the prompt token that follows the new ones.
  TokenId next_token = 0;

  // Range of the sequence's new tokens: their logits score the token after each of them
  // (StepOutput::scored). The plan must contain that token, so the last new token is excluded with
  // `sample`, and all are with `feeds_drawn_token`.
  PlanRange scored;

  int64_t context_tokens = 0;  // tokens whose KV rows and state exist already
  int64_t kv_tokens = 0;       // KV rows before this token exist and are not written again; at
                               // least context_tokens, more where pages are shared
  int32_t state_slot = 0;      // working slot, advanced in place; 0 for models without state
  PlanRange snapshots;         // range of BatchPlan::snapshots, ascending by their tokens

  // If not 0, the logits come from the hidden vector stored with this snapshot slot, and nothing is
  // computed.
  int32_t hidden_slot = 0;

  bool sample = false;  // the step draws a token; false: a prefill chunk that is not the last

  // Range of BatchPlan::mask_words, with `sample`: masks for the draw after the new tokens and
  // after each draft, in order. Bit i % 32 of word i / 32 of a mask says that token i may be drawn;
  // tokens beyond the words may not. Empty: all tokens may be drawn. With masks the host knows the
  // last new token (no `feeds_drawn_token`).
  PlanRange masks;

  // Tokens that the step computes and keeps, unless the sequence is skipped.
  [[nodiscard]] int64_t num_new_tokens() const {
    return int64_t{new_tokens.count} + (feeds_drawn_token ? 1 : 0);
  }

  // Rows of the forward pass: drafts are computed before it is known whether they are accepted.
  [[nodiscard]] int64_t num_rows() const { return num_new_tokens() + drafts.count; }
};

struct BatchPlan {
  // Applied by the runner before anything else, first `starts`, then `page_updates`.
  std::vector<SlotStart> starts;
  std::vector<PageUpdate> page_updates;

  std::vector<PlannedSequence> sequences;

  // The draft network computes its KV rows for the step's tokens: some sequences want drafts, or
  // drafts after the step's prompts may save time.
  bool computes_draft_slots = false;

  // The arrays that ranges refer to.
  std::vector<TokenId> tokens;
  std::vector<int32_t> draft_parents;
  std::vector<int32_t> pages;
  std::vector<PlannedSnapshot> snapshots;
  std::vector<uint32_t> mask_words;

  // Carried out before the step's first layer, in this order; add_move() keeps it sorted.
  std::vector<Move> moves;

  [[nodiscard]] bool empty() const { return sequences.empty(); }

  // Reserves memory for a step of `num_sequences` streams, so that planning it does not allocate.
  void reserve(int64_t num_sequences) {
    const auto count = static_cast<size_t>(num_sequences);
    page_updates.reserve(count);
    sequences.reserve(count);
    tokens.reserve(count);
    pages.reserve(count);
    snapshots.reserve(count);
  }

  void clear() {
    starts.clear();
    page_updates.clear();
    sequences.clear();
    computes_draft_slots = false;
    tokens.clear();
    draft_parents.clear();
    pages.clear();
    snapshots.clear();
    mask_words.clear();
    moves.clear();
  }

  [[nodiscard]] std::span<const TokenId> new_tokens(const PlannedSequence& sequence) const {
    return part_of(tokens, sequence.new_tokens);
  }

  [[nodiscard]] std::span<const Move> moves_of(MoveKind kind) const {
    return std::ranges::equal_range(moves, kind, {}, &Move::kind);
  }

  // Inserts a move after those with the same or a smaller order().
  void add_move(const Move& added) {
    moves.insert(std::ranges::upper_bound(moves, added.order(), {}, &Move::order), added);
  }

  // The token after scored row `i` of the sequence; `i` is below scored.count.
  [[nodiscard]] TokenId scored_token(const PlannedSequence& sequence, int32_t i) const {
    const int32_t index = sequence.scored.begin + i + 1;
    if (index == sequence.new_tokens.count) return sequence.next_token;
    return tokens[static_cast<size_t>(sequence.new_tokens.begin + index)];
  }

  [[nodiscard]] std::span<const TokenId> drafts(const PlannedSequence& sequence) const {
    return part_of(tokens, sequence.drafts);
  }

  [[nodiscard]] std::span<const int32_t> parents_of_drafts(const PlannedSequence& sequence) const {
    return part_of(draft_parents, sequence.draft_parents);
  }

  [[nodiscard]] std::span<const PlannedSnapshot> snapshots_of(
      const PlannedSequence& sequence) const {
    return part_of(snapshots, sequence.snapshots);
  }

  [[nodiscard]] std::span<const TokenId> ending_tokens(const SlotStart& start) const {
    return part_of(tokens, start.ending_tokens);
  }

  [[nodiscard]] std::span<const TokenId> logprob_tokens(const SlotStart& start) const {
    return part_of(tokens, start.logprob_tokens);
  }

  [[nodiscard]] std::span<const TokenId> output_tokens(const SlotStart& start) const {
    return part_of(tokens, start.output_tokens);
  }

  [[nodiscard]] std::span<const TokenId> context_of(const SlotStart& start) const {
    return part_of(tokens, start.context);
  }

  [[nodiscard]] std::span<const int32_t> pages_of(const PageUpdate& update) const {
    return part_of(pages, update.pages);
  }

  // Mask of the draw after `num_drafts` drafts; empty: any token may be drawn.
  [[nodiscard]] std::span<const uint32_t> mask_of(const PlannedSequence& sequence,
                                                  int32_t num_drafts = 0) const {
    const int32_t words = sequence.masks.count / (sequence.drafts.count + 1);
    return part_of(mask_words,
                   {.begin = sequence.masks.begin + num_drafts * words, .count = words});
  }

  // The add functions append values to an array of the plan and return their range.
  PlanRange add_tokens(std::span<const TokenId> added) { return append(tokens, added); }

  PlanRange add_draft_parents(std::span<const int32_t> added) {
    return append(draft_parents, added);
  }

  PlanRange add_pages(std::span<const int32_t> added) { return append(pages, added); }

  PlanRange add_snapshots(std::span<const PlannedSnapshot> added) {
    return append(snapshots, added);
  }

  // Appends a mask that allows no token, for the caller to fill in. Valid until the next call.
  std::span<uint32_t> add_mask(int64_t vocab_size) {
    const auto words = static_cast<size_t>((vocab_size + 31) / 32);
    mask_words.resize(mask_words.size() + words);
    return std::span(mask_words).last(words);
  }

  [[nodiscard]] int64_t num_rows() const {
    int64_t count = 0;
    for (const PlannedSequence& sequence : sequences) count += sequence.num_rows();
    return count;
  }

  [[nodiscard]] int64_t num_scored_rows() const {
    int64_t count = 0;
    for (const PlannedSequence& sequence : sequences) count += sequence.scored.count;
    return count;
  }

 private:
  template <typename Value>
  static std::span<const Value> part_of(const std::vector<Value>& values, PlanRange range) {
    return std::span<const Value>(values).subspan(static_cast<size_t>(range.begin),
                                                  static_cast<size_t>(range.count));
  }

  template <typename Value>
  static PlanRange append(std::vector<Value>& values, std::span<const Value> added) {
    const auto begin = static_cast<int32_t>(values.size());
    values.insert(values.end(), added.begin(), added.end());
    return {.begin = begin, .count = static_cast<int32_t>(added.size())};
  }
};

}  // namespace heddle::request

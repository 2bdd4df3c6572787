// SPDX-License-Identifier: Apache-2.0
// StreamDrafts: chooses the drafts of a step's streams, as many as pay and fit: the drafter's
// proposals, drafts that the runner made in the step before, or tokens that the form of an answer
// forces.
//
//   propose() -> of() for each stream            and ended() when a sequence leaves
//
// As many are verified as pay by what such steps have cost so far, those that the runner has made
// in debt, too. New ones are made, and those of a drafter verified, only while the account of
// drafts allows it (speculative/draft_cost.h).
//
// Drafts continue the whole text of a stream, so that one with a draw in flight has none. A step
// with drafts is therefore planned after the one before it has ended (waits_for()), and only where
// drafts are expected: all other steps overlap. A runner may tell a step's tokens while it still
// makes the drafts behind them, and keep these to itself (PlannedSequence::may_keep_drafts): so the
// next step is planned meanwhile.
//
// Where the form of an answer allows only one text, its usual tokens become drafts
// (ConstraintState::forced_tokens()), with a drafter or without, for as many streams as there are
// rows. They replace the stream's other drafts, unless these begin with the same tokens. Nothing
// measures whether they pay: nearly all are accepted, and without measuring, an answer that runs
// alone takes the same steps every time. A step with forced tokens overlaps others: a stream with a
// form is planned only when its last token is known anyway.
//
// Threading: confined to the engine thread. Cost: that of the drafter for each stream; nothing for
// more streams than half the rows that drafts may take. Forced tokens take up to 25 us a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "request/batch_plan.h"
#include "scheduler/running_set.h"
#include "speculative/draft_cost.h"
#include "speculative/draft_odds.h"
#include "speculative/drafter.h"

namespace heddle::scheduler {

struct StreamDraftsOptions {
  int64_t max_drafts = 0;  // per stream and step
  int64_t max_rows = 0;    // StepLimits::max_draft_rows
  bool adapts = true;      // only as many as pay (speculative/draft_cost.h); false: all
  int64_t max_made = 0;    // StepLimits::max_made_drafts; not 0: the runner makes all drafts
  int64_t topk = 1;        // StepLimits::draft_topk
};

class StreamDrafts {
 public:
  // Without a drafter there are the runner's drafts, or none. `cost` and `odds` outlive it.
  StreamDrafts(std::unique_ptr<speculative::Drafter> drafter, const StreamDraftsOptions& options,
               const speculative::DraftCost& cost, const speculative::DraftOdds& odds)
      : drafter_(std::move(drafter)), options_(options), cost_(&cost), odds_(&odds) {}

  // Decides on drafts for the streams of the next step, which take at most `most_rows` rows besides
  // one per stream. Does not change the state of their grammars.
  void propose(std::span<RunningSequence* const> streams, int64_t most_rows);

  // Drafts of the stream with this index in propose(). Valid until the next propose().
  [[nodiscard]] std::span<const TokenId> of(size_t stream) const;

  // The drafts that those of() follow, as request::PlannedSequence::draft_parents; empty: a chain.
  [[nodiscard]] std::span<const int32_t> parents_of(size_t stream) const;

  // Whether those of of() are forced by the form of the answer.
  [[nodiscard]] bool forced(size_t stream) const {
    return stream < forced_.size() && forced_[stream] != 0;
  }

  // Number of drafts that the runner makes after the stream's draws.
  [[nodiscard]] int64_t wanted(size_t stream) const;

  // The same for prompts that begin to decode next to these streams.
  [[nodiscard]] int64_t wanted_behind_prompts(std::span<RunningSequence* const> streams);

  // Whether prompts go through the draft network: their drafts may pay off, and one more stream
  // would have some.
  [[nodiscard]] bool follows_prompts(std::span<RunningSequence* const> streams);

  // Whether the next step is to be planned when the one in flight has ended: some of `running` have
  // drafts in it, or would have drafts then.
  [[nodiscard]] bool waits_for(std::span<RunningSequence* const> running);

  // The sequence has left the running ones; it may come back.
  void ended(const request::Sequence& sequence);

 private:
  [[nodiscard]] bool serves(size_t num_streams) const;
  void clear_proposals();
  void collect(std::span<RunningSequence* const> streams, bool in_flight_too);
  // The sequence has a constraint.
  void force(const RunningSequence& running, size_t stream, int64_t most_rows);
  void want(std::span<RunningSequence* const> streams);
  void weigh_wanted(std::span<RunningSequence* const> streams);
  void weigh_prompt();
  [[nodiscard]] int64_t depth() const;
  [[nodiscard]] int64_t wanted_depth() const;

  std::unique_ptr<speculative::Drafter> drafter_;  // may be null
  StreamDraftsOptions options_;
  const speculative::DraftCost* cost_;
  const speculative::DraftOdds* odds_;
  std::vector<request::PlanRange> ranges_;               // by stream, in tokens_
  std::vector<request::PlanRange> parent_ranges_;        // by stream, in parents_
  std::vector<char> forced_;                             // by stream
  std::vector<TokenId> tokens_;                          // all proposed drafts
  std::vector<int32_t> parents_;                         // for trees
  speculative::Drafts proposed_;                         // for one stream
  std::vector<speculative::DraftCost::Stream> weighed_;  // by stream
  std::vector<int64_t> wanted_;                          // by stream
  int64_t last_depth_ = 0;  // depth in the last step: drafts wanted, or a drafter's drafts verified
  std::vector<RunningSequence*> streams_;  // scratch of waits_for()
};

}  // namespace heddle::scheduler

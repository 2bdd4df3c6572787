// SPDX-License-Identifier: Apache-2.0
// StreamDrafts: chooses the drafts of a step's streams, as many as save time and fit. Drafts are a
// drafter's proposals, drafts that the runner made in the step before, or tokens that the answer's
// grammar forces.
//
//   propose() -> of() for each stream            ended() when a sequence leaves
//
// The number of drafts to verify follows from the measured cost of earlier steps. The runner makes
// new drafts only while the account of drafts (speculative/draft_cost.h) is not in debt. A
// drafter's drafts are also verified only then; drafts that the runner has already made are
// verified even in debt.
//
// Drafts continue the whole text of a stream, so a stream with a draw in flight has none. A step
// with drafts is therefore planned after the step before it has ended (waits_for()); steps without
// expected drafts overlap. A runner may also deliver a step's tokens while it still makes the
// drafts after them, and keep these drafts to itself (PlannedSequence::may_keep_drafts). The next
// step is then planned meanwhile.
//
// Where the answer's grammar allows only one text, its usual tokens become drafts
// (ConstraintState::forced_tokens()), with a drafter or without, for as many streams as there are
// rows. They replace the stream's other drafts, unless these begin with the same tokens. Whether
// they save time is not measured: nearly all are accepted, and without measurements an answer that
// runs alone takes the same steps every time. A step with forced tokens overlaps others, because a
// stream with a grammar is planned only when its last token is known.
//
// Threading: confined to the engine thread. Cost: the drafter's for each stream, or nothing if the
// streams exceed half the rows that drafts may take. Forced tokens take up to 25 us a stream.
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
  int64_t max_drafts = 0;  // most drafts per stream and step
  int64_t max_rows = 0;    // most rows of sequences with drafts in a step;
                           // StepLimits::max_draft_rows
  bool adapts = true;      // verify only as many drafts as save time (speculative/draft_cost.h);
                           // false: all
  int64_t max_made = 0;    // StepLimits::max_made_drafts; if not 0, the runner makes all drafts
  int64_t topk = 1;        // branches of the runner's draft trees; StepLimits::draft_topk
};

class StreamDrafts {
 public:
  // `drafter` may be null: then only the runner makes drafts, if it does. `cost` and `odds` outlive
  // the object.
  StreamDrafts(std::unique_ptr<speculative::Drafter> drafter, const StreamDraftsOptions& options,
               const speculative::DraftCost& cost, const speculative::DraftOdds& odds)
      : drafter_(std::move(drafter)), options_(options), cost_(&cost), odds_(&odds) {}

  // Decides on drafts for the streams of the next step, which get at most `most_rows` rows besides
  // one per stream. Does not change the state of the streams' grammars.
  void propose(std::span<RunningSequence* const> streams, int64_t most_rows);

  // Drafts of the stream with this index in `streams` of propose(). Valid until the next propose().
  [[nodiscard]] std::span<const TokenId> of(size_t stream) const;

  // The parents of the drafts in of(), in the form of request::PlannedSequence::draft_parents;
  // empty: the drafts are a chain.
  [[nodiscard]] std::span<const int32_t> parents_of(size_t stream) const;

  // Whether the drafts in of() are tokens that the answer's grammar forces.
  [[nodiscard]] bool forced(size_t stream) const {
    return stream < forced_.size() && forced_[stream] != 0;
  }

  // Number of drafts that the runner makes after the stream's draws.
  [[nodiscard]] int64_t wanted(size_t stream) const;

  // Number of drafts that the runner makes after a prompt that begins to decode next to these
  // streams.
  [[nodiscard]] int64_t wanted_behind_prompts(std::span<RunningSequence* const> streams);

  // Whether prompts go through the draft network: true if drafts may save time with one more
  // stream.
  [[nodiscard]] bool follows_prompts(std::span<RunningSequence* const> streams);

  // Whether the next step must be planned after the one in flight has ended: some of `running` have
  // drafts in that step, or would get drafts once it has ended.
  [[nodiscard]] bool waits_for(std::span<RunningSequence* const> running);

  // Called when the sequence no longer runs; it may return.
  void ended(const request::Sequence& sequence);

 private:
  [[nodiscard]] bool serves(size_t num_streams) const;
  void clear_proposals();
  void collect(std::span<RunningSequence* const> streams, bool in_flight_too);
  // The sequence must have a constraint.
  void force(const RunningSequence& running, size_t stream, int64_t most_rows);
  void want(std::span<RunningSequence* const> streams);
  void weigh_wanted(std::span<RunningSequence* const> streams);
  void weigh_prompt();
  [[nodiscard]] int64_t depth() const;
  [[nodiscard]] int64_t wanted_depth() const;

  std::unique_ptr<speculative::Drafter> drafter_;  // proposes drafts; may be null
  StreamDraftsOptions options_;
  const speculative::DraftCost* cost_;
  const speculative::DraftOdds* odds_;
  std::vector<request::PlanRange> ranges_;               // by stream: range of its drafts in
                                                         // tokens_
  std::vector<request::PlanRange> parent_ranges_;        // by stream: range of its parents in
                                                         // parents_
  std::vector<char> forced_;                             // by stream: 1 if its drafts are forced
  std::vector<TokenId> tokens_;                          // the drafts of all streams
  std::vector<int32_t> parents_;                         // parents of the drafts that form trees
  speculative::Drafts proposed_;                         // scratch: proposals for one stream
  std::vector<speculative::DraftCost::Stream> weighed_;  // by stream: its number of drafts and
                                                         // acceptance trend, for DraftCost
  std::vector<int64_t> wanted_;                          // by stream: drafts for the runner to make
  int64_t last_depth_ = 0;  // depth of the last step: drafts wanted from the runner, or a drafter's
                            // drafts verified
  std::vector<RunningSequence*> streams_;  // scratch memory of waits_for()
};

}  // namespace heddle::scheduler

// SPDX-License-Identifier: Apache-2.0
// DraftCost: how many drafts pay. A step of more rows takes longer and may yield more tokens; the
// best number of drafts is the one that yields most tokens a second, and none where drafting loses.
//
// The cost of a step is kept as its ratio to a plain step of as many streams, by number of streams
// and of rows, in size classes from 8 on (runner/program/batch_padding.h). An expected curve,
// 1 + fixed + each * drafts of a stream, stands for what was never measured; what was measured says
// how much dearer than that rows are, and so does for other numbers of rows and of streams. So a
// few steps decide. A size that was never measured counts as somewhat cheaper than thought: what
// may pay is tried, a single draft first, and then at most about twice as many as were measured.
//
// Whether the odds and the costs were right shows in accounts, one for each size of streams, in
// plain steps: each step with drafts adds the plain steps that its tokens would have taken, less
// what it took; each plain step adds a small share of itself. In debt nothing is drafted until
// plain steps have paid it; with credit drafts are tried that seem to lose a little. So steps that
// decode only lose that share and a few steps of each size, trials and mistakes included, whatever
// costs and odds are, and however they change. Steps with prompts are in no account.
//
// Plain steps of as many streams come first, and again after kRemembered steps with drafts. A ratio
// is forgotten when that many streams have made kRemembered steps since.
//
// Threading: thread-confined. Cost: add() O(1); best_depth() O(depths x streams) and a look at what
// is remembered, about a microsecond.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "speculative/draft_odds.h"

namespace heddle::speculative {

class DraftCost {
 public:
  static constexpr int64_t kRemembered = 256;
  static constexpr int64_t kPlainTries = 3;  // plain steps after which their time is known
  // Credit that a plain step adds: the share of the time that drafts may lose.
  static constexpr double kTrialShare = 0.0075;
  // The largest credit, in plain steps. One step with drafts gains or loses up to three, so that a
  // smaller credit is soon lost by chance. It takes 400 plain steps to pay off a loss of three.
  static constexpr double kMostCredit = 12;
  static constexpr double kMostDebt = 6;

  // A step that ended, none of whose rows was a prompt's.
  struct Step {
    int64_t num_streams = 0;
    int64_t num_rows = 0;
    int64_t num_tokens = 0;  // tokens that the step yielded
    double seconds = 0;
    // The step made more or fewer drafts than it verified: its time is not attributed to either
    // number, but counts in the account.
    bool makes_others = false;
    // The step prepared something for later ones (captures, for example) and does not count.
    bool warms_up = false;
  };

  // A stream of the next step.
  struct Stream {
    int64_t num_drafts = 0;  // drafts that a stream may have
    double trend = 1;        // DraftOdds::AcceptanceTrend
  };

  void add(const Step& step);

  // The most drafts that a stream should have in a step of all of them, in which sequences with
  // drafts have at most `max_rows` rows. 0 also where plain steps of so many are not known. The
  // depth of the steps before, 0 for plain ones, is left only for one that is clearly better.
  [[nodiscard]] int64_t best_depth(std::span<const Stream> streams, const DraftOdds& odds,
                                   int64_t max_rows, int64_t depth_before = 0) const;

  // Whether a step with drafts may run for `num_streams` streams: there is no debt, and no plain
  // step is due.
  [[nodiscard]] bool may_draft(int64_t num_streams) const;

  // Seconds of a plain step with `num_streams` streams; 0: not known yet.
  [[nodiscard]] double plain_seconds(int64_t num_streams) const;

  // The duration of a step with these streams and rows, divided by a plain step's: measured, or
  // else expected.
  [[nodiscard]] double ratio(int64_t num_streams, int64_t num_rows) const;

  // Plain steps that drafts saved with `num_streams` streams, within limits; negative: debt.
  [[nodiscard]] double credit(int64_t num_streams) const {
    return plain_[class_of(num_streams)].credit;
  }

 private:
  static constexpr size_t kClasses = 32;

  struct Plain {
    double seconds = 0;
    int64_t count = 0;     // number of measured steps
    int64_t since = 0;     // steps with drafts since
    int64_t due = 0;       // plain steps that are to come before the next with drafts
    double credit = 0;     // plain steps that drafts gained
    bool in_debt = false;  // until the credit is 0 or more again
  };

  struct Ratio {
    double drafts = 0;  // drafts of each stream
    double value = 0;   // duration relative to a plain step
    int64_t count = 0;  // number of measured steps
    int64_t at = 0;     // steps of so many streams until then
  };

  [[nodiscard]] static size_t class_of(int64_t count);
  [[nodiscard]] bool is_known(size_t streams, size_t rows) const;
  [[nodiscard]] size_t nearest_measured(size_t streams) const;
  [[nodiscard]] double most_tried(size_t measured) const;
  [[nodiscard]] double dearness(size_t streams, double drafts) const;
  [[nodiscard]] double ratio(size_t measured, int64_t num_streams, int64_t num_rows) const;
  void add_plain(Plain& plain, double seconds);
  void add_drafted(Plain& plain, const Step& step);
  void measure(size_t streams, const Step& step, double value, double expected);

  std::array<Plain, kClasses> plain_;  // indexed by class_of(streams)
  // Indexed by class_of(streams), then class_of(rows).
  std::array<std::array<Ratio, kClasses>, kClasses> ratios_;
  std::array<int64_t, kClasses> num_steps_{};  // indexed by class_of(streams)
};

}  // namespace heddle::speculative

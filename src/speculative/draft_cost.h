// SPDX-License-Identifier: Apache-2.0
// DraftCost: how many drafts save time. A step with more rows takes longer and may yield more
// tokens. The best number of drafts yields most tokens per second; it is 0 where drafting loses
// time.
//
// The cost of a step is stored as its ratio to a plain step with as many streams, by number of
// streams and of rows, in size classes from 8 on (runner/program/batch_padding.h). An expected
// curve, 1 + fixed + each * drafts of a stream, is used where nothing was measured. A measured
// ratio scales this curve, also for other numbers of rows and streams, so a few steps suffice. The
// extra cost of a size that was never measured is assumed somewhat lower than expected, so that it
// is tried: a single draft first, and then at most about twice as many as were measured.
//
// Accounts, one for each size class of streams, show whether odds and costs were right. They are
// kept in plain steps: each step with drafts adds the plain steps that its tokens would have taken,
// minus its own cost; each plain step adds a small share of itself. An account in debt allows no
// drafts until plain steps have paid the debt; an account with credit allows drafts that seem to
// lose a little. So whatever the costs and odds are and however they change, steps that only decode
// lose no more than that share and a few steps of each size, trials and mistakes included. Steps
// with prompts are in no account.
//
// The first steps of each number of streams are plain, and so are a few after every kRemembered
// steps with drafts. A ratio is dropped when kRemembered steps with that many streams have run
// since.
//
// Threading: thread-confined. Cost: add() O(1); best_depth() O(depths x streams) and a scan of the
// remembered ratios, about a microsecond.
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
  static constexpr int64_t kPlainTries = 3;  // plain steps to measure before their time counts as
                                             // known
  // Credit that a plain step adds: the share of time that drafts may lose.
  static constexpr double kTrialShare = 0.0075;
  // Largest credit, in plain steps. One step with drafts gains or loses up to three, so a smaller
  // credit would soon be lost by chance. It takes 400 plain steps to pay off a loss of three.
  static constexpr double kMostCredit = 12;
  static constexpr double kMostDebt = 6;  // debt, in plain steps, from which drafting stops

  // A step that ended and had no rows of prompts.
  struct Step {
    int64_t num_streams = 0;
    int64_t num_rows = 0;
    int64_t num_tokens = 0;  // tokens that the step drew
    double seconds = 0;
    // The step made more or fewer drafts than it verified. Its time is used for the account, but
    // for no ratio.
    bool makes_others = false;
    // The step also prepared later ones (captures, for example), so it does not count.
    bool warms_up = false;
  };

  // A stream of the next step, with the drafts it may have.
  struct Stream {
    int64_t num_drafts = 0;  // drafts that the stream may have
    double trend = 1;        // accepted relative to expected drafts;
                             // DraftOdds::AcceptanceTrend::value()
  };

  void add(const Step& step);

  // The best limit on the drafts of each stream, in a step of all `streams` in which sequences with
  // drafts have at most `max_rows` rows. 0 if drafts do not pay, or if the time of plain steps with
  // so many streams is unknown. `depth_before`, the limit of the last steps (0: plain steps), is
  // kept unless another limit is clearly better.
  [[nodiscard]] int64_t best_depth(std::span<const Stream> streams, const DraftOdds& odds,
                                   int64_t max_rows, int64_t depth_before = 0) const;

  // Whether a step with drafts may run for `num_streams` streams: their account is not in debt, and
  // no plain step is due.
  [[nodiscard]] bool may_draft(int64_t num_streams) const;

  // Seconds of a plain step with `num_streams` streams; 0: not known yet.
  [[nodiscard]] double plain_seconds(int64_t num_streams) const;

  // Duration of a step with these numbers of streams and rows, relative to a plain step: measured,
  // or else expected.
  [[nodiscard]] double ratio(int64_t num_streams, int64_t num_rows) const;

  // Number of plain steps that drafts have saved with `num_streams` streams, within limits;
  // negative: debt.
  [[nodiscard]] double credit(int64_t num_streams) const {
    return plain_[class_of(num_streams)].credit;
  }

 private:
  static constexpr size_t kClasses = 32;

  struct Plain {
    double seconds = 0;
    int64_t count = 0;     // number of plain steps measured
    int64_t since = 0;     // steps with drafts since the last plain ones that were due
    int64_t due = 0;       // plain steps that must run before the next step with drafts
    double credit = 0;     // plain steps that drafts have saved; negative: debt
    bool in_debt = false;  // set when the debt is too large, until the credit is 0 or more
  };

  struct Ratio {
    double drafts = 0;  // number of drafts of each stream
    double value = 0;   // duration relative to a plain step
    int64_t count = 0;  // number of steps measured
    int64_t at = 0;     // number of steps with so many streams when it was last measured
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

  std::array<Plain, kClasses> plain_;  // measured plain steps, indexed by class_of(streams)
  // Measured ratios, indexed by class_of(streams), then class_of(rows).
  std::array<std::array<Ratio, kClasses>, kClasses> ratios_;
  std::array<int64_t, kClasses> num_steps_{};  // number of all steps, indexed by class_of(streams)
};

}  // namespace heddle::speculative

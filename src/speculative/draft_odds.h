// SPDX-License-Identifier: Apache-2.0
// DraftOdds: how often drafts are accepted, by their position behind the text, and how each stream
// compares with the others.
//
// A position counts where all drafts before it were accepted. Its prior is the estimate for the
// position before it, and kExpected for the first. Observations fade, so that the odds follow the
// texts, and return to kExpected while nothing is drafted.
//
// Threading: thread-confined. Cost: a dozen multiplications a call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::speculative {

class DraftOdds {
 public:
  // Assumed share of accepted drafts before any was verified.
  static constexpr double kExpected = 0.7;

  // Accepted drafts of a stream, compared with those of all streams at the same positions.
  struct AcceptanceTrend {
    double accepted = 0;  // decayed, like `expected`
    double expected = 0;  // to be accepted

    // 1: as much as those of others.
    [[nodiscard]] double value() const;

    // A step without drafts: the trend returns to 1.
    void fade();
  };

  DraftOdds();

  // The first `num_accepted` of a stream's `num_drafts` drafts, at least one, were accepted.
  void verified(AcceptanceTrend& trend, int64_t num_drafts, int64_t num_accepted);

  // A step without drafts.
  void fade();

  // The probability that the draft at this position, from 0, is accepted where all before it were.
  [[nodiscard]] double chance(int64_t position, double trend) const;

  // The expected tokens per step with `num_drafts` drafts, for a stream of this trend.
  [[nodiscard]] double expected_tokens(int64_t num_drafts, double trend) const;

 private:
  static constexpr size_t kPositions = 8;  // later positions share the odds of the last one

  struct Position {
    double accepted = 0;
    double seen = 0;
    double chance = kExpected;
  };

  void update();

  std::array<Position, kPositions> positions_;
};

}  // namespace heddle::speculative

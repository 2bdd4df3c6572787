// SPDX-License-Identifier: Apache-2.0
// DraftOdds: how often drafts are accepted, by their position after the text, and how each stream
// compares with the others.
//
// Only drafts whose predecessors were all accepted count for a position. The prior of a position is
// the estimate for the position before, and kExpected for the first. Observations fade, so that the
// odds follow changing texts; while nothing is drafted they return to kExpected.
//
// Threading: thread-confined. Cost: a dozen multiplications a call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::speculative {

class DraftOdds {
 public:
  // Share of drafts assumed to be accepted before any was verified.
  static constexpr double kExpected = 0.7;

  // Accepted drafts of one stream, compared with the number expected from the odds of all streams.
  struct AcceptanceTrend {
    double accepted = 0;  // accepted drafts; decays, like `expected`
    double expected = 0;  // expected number of accepted drafts

    // 1: as many accepted drafts as expected.
    [[nodiscard]] double value() const;

    // Called for a step in which the stream had no drafts: the trend returns towards 1.
    void fade();
  };

  DraftOdds();

  // Records that the first `num_accepted` of a stream's `num_drafts` drafts, at least one, were
  // accepted.
  void verified(AcceptanceTrend& trend, int64_t num_drafts, int64_t num_accepted);

  // Called for a step without drafts: the odds return towards kExpected.
  void fade();

  // Probability that the draft at this position, counted from 0, is accepted if all before it were.
  [[nodiscard]] double chance(int64_t position, double trend) const;

  // Expected tokens per step of a stream with this trend and `num_drafts` drafts.
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

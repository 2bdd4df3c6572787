// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_odds.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::speculative {

namespace {

// Share of the history that remains after a step in which drafts were verified.
constexpr double kKept = 0.99;
constexpr double kKeptIdle = 0.996;      // share of the history that remains after a step without
                                         // drafts
constexpr double kPriorWeight = 4;       // weight of the odds of the position before, in drafts
constexpr double kTrendKept = 0.95;      // share of a trend that remains after drafts of its stream
                                         // were verified
constexpr double kTrendKeptIdle = 0.99;  // share of a trend that remains after a step without
                                         // drafts
constexpr double kTrendWeight = 5;  // weight of the assumption that the trend is 1, in accepted
                                    // drafts
constexpr double kMostChance = 0.99;

}  // namespace

double DraftOdds::AcceptanceTrend::value() const {
  return (accepted + kTrendWeight) / (expected + kTrendWeight);
}

void DraftOdds::AcceptanceTrend::fade() {
  accepted *= kTrendKeptIdle;
  expected *= kTrendKeptIdle;
}

DraftOdds::DraftOdds() { update(); }

void DraftOdds::verified(AcceptanceTrend& trend, int64_t num_drafts, int64_t num_accepted) {
  HEDDLE_CHECK_LE(num_accepted, num_drafts);
  trend.accepted *= kTrendKept;
  trend.expected *= kTrendKept;
  for (Position& position : positions_) {
    position.accepted *= kKept;
    position.seen *= kKept;
  }
  const int64_t num_judged = std::min(num_accepted + 1, num_drafts);
  for (int64_t i = 0; i < num_judged; ++i) {
    Position& position = positions_[std::min(static_cast<size_t>(i), kPositions - 1)];
    trend.expected += position.chance;
    position.seen += 1;
    if (i >= num_accepted) continue;
    trend.accepted += 1;
    position.accepted += 1;
  }
  update();
}

void DraftOdds::fade() {
  for (Position& position : positions_) {
    position.accepted *= kKeptIdle;
    position.seen *= kKeptIdle;
  }
  update();
}

void DraftOdds::update() {
  double before = kExpected;
  for (Position& position : positions_) {
    position.chance = (position.accepted + kPriorWeight * before) / (position.seen + kPriorWeight);
    before = position.chance;
  }
}

double DraftOdds::chance(int64_t position, double trend) const {
  const double all = positions_[std::min(static_cast<size_t>(position), kPositions - 1)].chance;
  return std::min(all * trend, kMostChance);
}

double DraftOdds::expected_tokens(int64_t num_drafts, double trend) const {
  double tokens = 1;
  double all_accepted = 1;  // probability that all drafts so far are accepted
  for (int64_t i = 0; i < num_drafts; ++i) tokens += all_accepted *= chance(i, trend);
  return tokens;
}

}  // namespace heddle::speculative

// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_odds.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::speculative {

namespace {

constexpr double kKept = 0.99;          // of what was seen, when drafts of a stream were verified
constexpr double kKeptIdle = 0.996;     // in a step without drafts
constexpr double kPriorWeight = 4;      // of the place before, in drafts
constexpr double kLuckKept = 0.95;      // when drafts of the stream were verified
constexpr double kLuckKeptIdle = 0.99;  // in a step without
constexpr double kLuckWeight = 5;       // of what is expected, in drafts that hold
constexpr double kMostChance = 0.99;

}  // namespace

double DraftOdds::Luck::value() const { return (held + kLuckWeight) / (expected + kLuckWeight); }

void DraftOdds::Luck::fade() {
  held *= kLuckKeptIdle;
  expected *= kLuckKeptIdle;
}

DraftOdds::DraftOdds() { update(); }

void DraftOdds::verified(Luck& luck, int64_t num_drafts, int64_t num_held) {
  HEDDLE_CHECK_LE(num_held, num_drafts);
  luck.held *= kLuckKept;
  luck.expected *= kLuckKept;
  for (Place& place : places_) {
    place.held *= kKept;
    place.seen *= kKept;
  }
  const int64_t num_judged = std::min(num_held + 1, num_drafts);
  for (int64_t i = 0; i < num_judged; ++i) {
    Place& place = places_[std::min(static_cast<size_t>(i), kPlaces - 1)];
    luck.expected += place.chance;
    place.seen += 1;
    if (i >= num_held) continue;
    luck.held += 1;
    place.held += 1;
  }
  update();
}

void DraftOdds::fade() {
  for (Place& place : places_) {
    place.held *= kKeptIdle;
    place.seen *= kKeptIdle;
  }
  update();
}

void DraftOdds::update() {
  double before = kExpected;
  for (Place& place : places_) {
    place.chance = (place.held + kPriorWeight * before) / (place.seen + kPriorWeight);
    before = place.chance;
  }
}

double DraftOdds::chance(int64_t place, double luck) const {
  const double all = places_[std::min(static_cast<size_t>(place), kPlaces - 1)].chance;
  return std::min(all * luck, kMostChance);
}

double DraftOdds::expected_tokens(int64_t num_drafts, double luck) const {
  double tokens = 1;
  double held = 1;
  for (int64_t i = 0; i < num_drafts; ++i) tokens += held *= chance(i, luck);
  return tokens;
}

}  // namespace heddle::speculative

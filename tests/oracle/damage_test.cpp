// SPDX-License-Identifier: Apache-2.0
// Proves that the label oracle finds bugs. Each damage is done to the plans between engine and
// device, and must change an answer within a few scenarios, whatever the device complains of
// besides; the same scenarios without the damage are clean.
#include <string>

#include <gtest/gtest.h>

#include "play.h"

namespace heddle::oracle {
namespace {

class DamagedPlans : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedPlans, ChangeAnAnswerWithinAFewScenarios) {
  constexpr uint64_t kScenarios = 400;
  int64_t with_complaints = 0;
  for (uint64_t seed = 0; seed < kScenarios; ++seed) {
    Scenario scenario = make_scenario(seed);
    // The scheduler aborts if a sequence is left out that has not ended: no failed draws in
    // batch slots that are mixed up.
    for (Arrival& arrival : scenario.arrivals) arrival.failing_draw = -1;
    // Drafts would go on behind ends that the device does not know.
    if (GetParam() == Damage::kEndComputed) scenario.drafts = Drafts::kNone;
    const Outcome outcome = play(scenario, GetParam());
    if (outcome.counts.plans.damages > 0 && !outcome.complaints.empty()) ++with_complaints;
    if (outcome.wrong_answers.empty()) continue;
    EXPECT_GT(outcome.counts.plans.damages, 0) << "seed " << seed;
    if (with_complaints == 0) continue;  // the device is to notice as well
    EXPECT_TRUE(play(scenario).clean()) << "seed " << seed;
    RecordProperty("scenarios", static_cast<int>(seed + 1));
    return;
  }
  ADD_FAILURE() << "not one of " << kScenarios << " scenarios noticed";
}

INSTANTIATE_TEST_SUITE_P(Each, DamagedPlans, ::testing::ValuesIn(kAllDamages),
                         [](const auto& damage) { return std::string(name_of(damage.param)); });

}  // namespace
}  // namespace heddle::oracle

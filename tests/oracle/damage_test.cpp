// SPDX-License-Identifier: Apache-2.0
// Proves that the label oracle finds bugs. Each damage is done to the plans between engine and
// device, or by the device when it verifies drafts, and must change an answer within a few
// scenarios, whatever the device complains of besides; the same scenarios without it are clean.
#include <string>

#include <gtest/gtest.h>

#include "play.h"

namespace heddle::oracle {
namespace {

using testing::VerifyFault;

// A fault that is put in on purpose, and how soon it must be seen.
struct Bug {
  Damage damage = Damage::kNone;
  VerifyFault fault = VerifyFault::kNone;
  bool device_notices = true;
  uint64_t scenarios = 400;
};

// Finds a scenario of those that `fits` lets through in which an answer is wrong.
template <typename Fits>
void expect_noticed(const Bug& bug, const Fits& fits) {
  int64_t with_complaints = 0;
  for (uint64_t seed = 0; seed < bug.scenarios; ++seed) {
    Scenario scenario = make_scenario(seed);
    if (!fits(scenario)) continue;
    // The scheduler aborts if a sequence is left out that has not ended: no failed draws in
    // batch slots that are mixed up.
    for (Arrival& arrival : scenario.arrivals) arrival.failing_draw = -1;
    // Drafts would go on behind ends that the device does not know.
    if (bug.damage == Damage::kEndComputed) scenario.drafts = Drafts::kNone;
    const Outcome outcome = play(scenario, bug.damage, bug.fault);
    if (outcome.counts.plans.damages > 0 && !outcome.complaints.empty()) ++with_complaints;
    if (outcome.wrong_answers.empty()) continue;
    EXPECT_GT(outcome.counts.plans.damages, 0) << "seed " << seed;
    if (bug.device_notices && with_complaints == 0) continue;
    EXPECT_TRUE(play(scenario).clean()) << "seed " << seed;
    ::testing::Test::RecordProperty("scenarios", static_cast<int>(seed + 1));
    return;
  }
  ADD_FAILURE() << "not one of " << bug.scenarios << " scenarios noticed";
}

class DamagedPlans : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedPlans, ChangeAnAnswerWithinAFewScenarios) {
  expect_noticed({.damage = GetParam()}, [](const Scenario&) { return true; });
}

INSTANTIATE_TEST_SUITE_P(Each, DamagedPlans, ::testing::ValuesIn(kAllDamages),
                         [](const auto& damage) { return std::string(name_of(damage.param)); });

// In chains and in trees of drafts.
class DamagedDrafts : public ::testing::TestWithParam<bool> {};

TEST_P(DamagedDrafts, RejectedRowKeptChangesAnAnswer) {
  expect_noticed({.damage = Damage::kRejectedRowKept}, [](const Scenario& scenario) {
    return scenario.drafts != Drafts::kNone && scenario.branches_drafts == GetParam();
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, DamagedDrafts, ::testing::Bool(),
                         [](const auto& trees) { return trees.param ? "Trees" : "Chains"; });

struct FaultyCase {
  const char* name;
  bool trees;
  Bug bug;
};

class FaultyVerification : public ::testing::TestWithParam<FaultyCase> {};

TEST_P(FaultyVerification, ChangesAnAnswerWithinAFewScenarios) {
  const FaultyCase& one = GetParam();
  expect_noticed(one.bug, [&](const Scenario& scenario) {
    return scenario.drafts != Drafts::kNone && scenario.branches_drafts == one.trees;
  });
}

// A device cannot notice a wrong coin: all that it keeps is right for the token that it drew.
constexpr Bug kCoinOfParent{.fault = VerifyFault::kCoinOfParent, .device_notices = false};
constexpr Bug kCoinOfRow{.fault = VerifyFault::kCoinOfRow, .device_notices = false};
// Few snapshots lie where a step ends, and fewer of them are used again.
constexpr Bug kBonusInSnapshot{.fault = VerifyFault::kBonusInSnapshot, .scenarios = 10000};

// Left out are faults that do not exist: in a chain the draft before is the parent, rows lie where
// they stay and draft n is at place n; and siblings share a coin, as a path draws once at each
// place.
INSTANTIATE_TEST_SUITE_P(
    Each, FaultyVerification,
    ::testing::Values(
        FaultyCase{"StateOfWrongParentInTrees", true, {.fault = VerifyFault::kStateOfWrongParent}},
        FaultyCase{
            "WindowOfWrongParentInTrees", true, {.fault = VerifyFault::kWindowOfWrongParent}},
        FaultyCase{"StateOneLateInChains", false, {.fault = VerifyFault::kStateOneLate}},
        FaultyCase{"StateOneLateInTrees", true, {.fault = VerifyFault::kStateOneLate}},
        FaultyCase{"StateOfWrongNodeInTrees", true, {.fault = VerifyFault::kStateOfWrongNode}},
        FaultyCase{"BonusInSnapshotInChains", false, kBonusInSnapshot},
        FaultyCase{"BonusInSnapshotInTrees", true, kBonusInSnapshot},
        FaultyCase{"RowsNotMovedInTrees", true, {.fault = VerifyFault::kRowsNotMoved}},
        FaultyCase{"CoinOfParentInChains", false, kCoinOfParent},
        FaultyCase{"CoinOfParentInTrees", true, kCoinOfParent},
        FaultyCase{"CoinOfRowInTrees", true, kCoinOfRow}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace heddle::oracle

// SPDX-License-Identifier: Apache-2.0
#include "engine/watchdog.h"

#include <gtest/gtest.h>

#include "core/clock.h"

namespace heddle::engine {
namespace {

// Looks every period for so long; returns when it reported first, or -1.
double seconds_until_report(Watchdog& watchdog, ManualClock& clock, double seconds, int64_t steps,
                            bool works) {
  const double begin = clock.now_seconds();
  while (clock.now_seconds() < begin + seconds) {
    clock.advance_seconds(watchdog.period().count());
    if (watchdog.look(clock.now_seconds(), steps, works)) return clock.now_seconds() - begin;
  }
  return -1;
}

TEST(WatchdogTest, ReportsWhenNothingMovesForTheTimeout) {
  Watchdog watchdog(300);
  EXPECT_EQ(watchdog.period().count(), 5);
  ManualClock clock;
  EXPECT_EQ(seconds_until_report(watchdog, clock, 1000, 7, true), 305)
      << "from the first look that found work";
  EXPECT_EQ(seconds_until_report(watchdog, clock, 1000, 7, true), 300) << "and again";
}

TEST(WatchdogTest, AStepOrAMomentWithoutWorkResetsTheTime) {
  Watchdog watchdog(300);
  ManualClock clock;
  for (int64_t steps = 0; steps < 10; ++steps) {
    EXPECT_EQ(seconds_until_report(watchdog, clock, 290, steps, true), -1);
  }
  EXPECT_EQ(seconds_until_report(watchdog, clock, 5, 9, false), -1);
  EXPECT_EQ(seconds_until_report(watchdog, clock, 295, 9, true), -1);
  EXPECT_EQ(seconds_until_report(watchdog, clock, 10, 9, true), 10);
}

TEST(WatchdogTest, WaitsLongerWhereStepsAreSlow) {
  Watchdog watchdog(10);
  EXPECT_FALSE(watchdog.look(0, 7, true, 3));
  double now = 0;
  while (now < 100 && !watchdog.look(now, 7, true, 3)) now += 1;
  EXPECT_EQ(now, 30);
}

TEST(StepAllowanceTest, GrowsWithTheTokensInFlightAndTheSlowestPace) {
  StepAllowance allowance(100);
  EXPECT_EQ(allowance.stuck_seconds(), 10);
  EXPECT_EQ(StepAllowance(0).stuck_seconds(), 30);
  const StepFacts one[] = {{.decode_sequences = 1}};
  const StepFacts two[] = {{.decode_sequences = 10}, {.prefill_tokens = 90}};
  EXPECT_EQ(allowance.stretch(one), 10) << "no step has ended";
  allowance.count({.decode_sequences = 10, .seconds = 1});
  EXPECT_EQ(allowance.stretch(one), 1);
  EXPECT_NEAR(allowance.stretch(two), 8 * 100 * 0.1 / 10, 1e-9);
  allowance.count({.prefill_tokens = 1000, .seconds = 10});
  EXPECT_NEAR(allowance.stretch(two), 8, 0.01) << "faster steps are no reason to hurry";
  for (int i = 0; i < 5000; ++i) allowance.count({.prefill_tokens = 1000, .seconds = 1});
  EXPECT_LT(allowance.stretch(two), 2) << "but the slow one is forgotten in the end";
}

TEST(WatchdogTest, AnIdleEngineIsNotStuck) {
  Watchdog watchdog(1);
  ManualClock clock;
  EXPECT_EQ(seconds_until_report(watchdog, clock, 1000, 3, false), -1);
}

TEST(WatchdogTest, AProcessThatWasStoppedIsNotStuck) {
  Watchdog watchdog(300);
  ManualClock clock;
  EXPECT_FALSE(watchdog.look(clock.now_seconds(), 3, true));
  clock.advance_seconds(100'000);
  EXPECT_FALSE(watchdog.look(clock.now_seconds(), 3, true));
  EXPECT_EQ(seconds_until_report(watchdog, clock, 1000, 3, true), 290);
}

}  // namespace
}  // namespace heddle::engine

// SPDX-License-Identifier: Apache-2.0
// The label oracle: random scenarios, each of which must give every request the answer it would get
// alone. A snapshot whose label is wrong, a state or slot that two sequences use, a token fed twice
// or never changes an answer of the toy model at once.
//
//   HEDDLE_ORACLE_SCENARIOS=1000000  so many scenarios
//   HEDDLE_ORACLE_SEED=1234          only this one
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/compiler.h"
#include "play.h"

namespace heddle::oracle {
namespace {

constexpr int64_t kDefaultScenarios = HEDDLE_SANITIZED ? 2000 : 12000;

int64_t number_from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

std::string rerun(uint64_t seed) {
  return fmt::format("HEDDLE_ORACLE_SEED={} heddle_oracle_test --gtest_filter='*LabelOracle*'\n",
                     seed);
}

// A broken invariant aborts the process, and a bug may crash it: the signal handler then prints
// which scenario it was.
char rerun_line[128];

void print_rerun_line(int signal) {
  (void)!write(STDERR_FILENO, rerun_line, std::strlen(rerun_line));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

class CrashNote {
 public:
  explicit CrashNote(uint64_t seed) {
    std::strncpy(rerun_line, rerun(seed).c_str(), sizeof rerun_line - 1);
    for (size_t i = 0; i < kSignals.size(); ++i) {
      previous_[i] = std::signal(kSignals[i], print_rerun_line);
    }
  }

  ~CrashNote() {
    for (size_t i = 0; i < kSignals.size(); ++i) std::signal(kSignals[i], previous_[i]);
  }

  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;

 private:
  static constexpr std::array kSignals = {SIGABRT, SIGSEGV};
  std::array<void (*)(int), kSignals.size()> previous_{};
};

// Returns what the scenario reached; fails the test if it went wrong.
PlayCounts expect_clean(uint64_t seed) {
  const Scenario scenario = make_scenario(seed);
  const CrashNote note(seed);
  const Outcome outcome = play(scenario);
  EXPECT_TRUE(outcome.clean()) << outcome.to_string() << scenario.to_string() << rerun(seed);
  return outcome.counts;
}

// The scenarios are split into kShards cases: each takes a few seconds.
class LabelOracle : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kShards = 12;
};

TEST_P(LabelOracle, EveryRequestGetsWhatItGetsAlone) {
  const int64_t only = number_from_environment("HEDDLE_ORACLE_SEED", -1);
  const int64_t count = number_from_environment("HEDDLE_ORACLE_SCENARIOS", kDefaultScenarios);
  if (only >= 0) {
    if (GetParam() == 0) expect_clean(static_cast<uint64_t>(only));
    return;
  }
  for (int64_t seed = GetParam(); seed < count; seed += kShards) {
    expect_clean(static_cast<uint64_t>(seed));
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, LabelOracle, ::testing::Range(0, 12));

// Scenarios find bugs only if they reach the code where bugs are: this counts what they reach.
TEST(LabelOracleScenarios, ReachEveryMechanism) {
  constexpr uint64_t kScenarios = 1500;
  PlayCounts counts;
  for (uint64_t seed = 0; seed < kScenarios; ++seed) counts += expect_clean(seed);
  const auto expect_at_least = [](const char* what, int64_t reached, int64_t least) {
    EXPECT_GE(reached, least) << what;
    ::testing::Test::RecordProperty(what, std::to_string(reached));
  };
  expect_at_least("whole_answers", counts.whole_answers, 5000);
  expect_at_least("ended_early", counts.ended_early, 900);
  expect_at_least("refused", counts.refused, 100);
  expect_at_least("requests_with_reuse", counts.requests_with_reuse, 1800);
  expect_at_least("reused_tokens", counts.reused_tokens, 130000);
  expect_at_least("unusable_tokens", counts.unusable_tokens, 70000);
  expect_at_least("exact_repeats", counts.exact_repeats, 240);
  expect_at_least("pauses", counts.pauses, 120);
  expect_at_least("ghost_hits", counts.ghost_hits, 450);
  expect_at_least("clears", counts.clears, 60);
  expect_at_least("clears_refused", counts.clears_refused, 200);
  expect_at_least("accepted_drafts", counts.accepted_drafts, 10000);
  expect_at_least("rejected_drafts", counts.rejected_drafts, 10000);
  expect_at_least("forced_tokens", counts.forced_tokens, 5000);
  expect_at_least("drafter_rows_taken", counts.drafter_rows_taken, 5000);
  expect_at_least("made_drafts", counts.plans.made_drafts, 10000);
  expect_at_least("kept_drafts", counts.plans.kept_drafts, 5000);
  expect_at_least("trees", counts.plans.trees, 10000);
  expect_at_least("draft_snapshots", counts.plans.draft_snapshots, 100);
  expect_at_least("steps", counts.plans.steps, 100000);
  expect_at_least("steps_in_flight", counts.plans.steps_in_flight, 70000);
  expect_at_least("mixed_steps", counts.plans.mixed_steps, 1500);
  expect_at_least("fed_tokens", counts.plans.fed_tokens, 85000);
  expect_at_least("skipped", counts.plans.skipped, 650);
  expect_at_least("snapshots", counts.plans.snapshots, 4000);
  expect_at_least("hidden_kept", counts.plans.hidden_kept, 1000);
  expect_at_least("state_copies", counts.plans.state_copies, 1500);
  expect_at_least("page_copies", counts.plans.page_copies, 450);
  expect_at_least("replayed_rows", counts.plans.replayed_rows, 20000);
  expect_at_least("shared_pages", counts.plans.shared_pages, 200000);
  expect_at_least("shared_window_pages", counts.plans.shared_window_pages, 5000);
  expect_at_least("window_page_copies", counts.plans.window_page_copies, 50);
  expect_at_least("restarts", counts.plans.restarts, 170);
  expect_at_least("given_back", counts.plans.given_back, 450);
  expect_at_least("outgrown", counts.plans.outgrown, 100);
  expect_at_least("saves", counts.plans.saves, 300);
}

}  // namespace
}  // namespace heddle::oracle

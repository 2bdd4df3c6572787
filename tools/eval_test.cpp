// SPDX-License-Identifier: Apache-2.0
// heddle eval as a whole: the recorded questions of heddle-tiny, and exit codes.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "subcommand_fixture.h"
#include "support/test_data.h"

namespace heddle::tools {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// The first questions of a set, 15 at least, which travel with the repository.
std::string recorded(const std::string& set) {
  return heddle::testing::repository_path("tests/golden/heddle_tiny/" + set + ".jsonl").string();
}

struct Evaluated {
  Outcome outcome;
  Json report;  // an array where there is more than one set
};

// `heddle eval models/heddle-tiny SETS --dtype float32 --json MORE`.
Evaluated evaluate_tiny(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.begin(),
                   heddle::testing::repository_path("models/heddle-tiny").string());
  for (const char* argument : {"--dtype", "float32", "--json", "--max-total-tokens", "100000"}) {
    arguments.emplace_back(argument);
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  ::testing::internal::CaptureStdout();
  Evaluated evaluated{.outcome = run_captured(kEval, std::move(arguments))};
  const std::string output = ::testing::internal::GetCapturedStdout();
  if (!output.empty()) evaluated.report = Json::parse(output);
  return evaluated;
}

// transformers computed the recorded tokens in fp32, greedily.
void expect_recorded_tokens(const std::vector<std::string>& sets, std::vector<std::string> more,
                            int64_t num_questions) {
  more.emplace_back("--expect-reference");
  const auto [outcome, report] = evaluate_tiny(sets, more);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  ASSERT_EQ(report.size(), sets.size());
  int64_t total = 0;
  for (const Json& set : report) {
    SCOPED_TRACE(set["set"].get<std::string>());
    total += set["total"].get<int64_t>();
    EXPECT_EQ(set["with_reference"], set["total"]);
    EXPECT_EQ(set["equal_to_reference"].get<int64_t>() + set["near_ties"].get<int64_t>(),
              set["total"].get<int64_t>());
    EXPECT_LE(set["near_ties"].get<int64_t>(), set["total"].get<int64_t>() / 100);
    EXPECT_EQ(set["failed"], 0);
  }
  EXPECT_EQ(total, num_questions);
}

TEST(RecordedQuestions, HeddleTinyGivesTheRecordedTokens) {
  expect_recorded_tokens(
      {recorded("math"), recorded("recall"), recorded("skill"), recorded("story")},
      {"--num-questions", "15"}, 60);
}

// They take 20 seconds of CPU time, the sample two.
TEST(RecordedQuestions, HeddleTinyGivesTheRecordedTokensOfAllQuestions) {
  if (!heddle::testing::wants_everything()) GTEST_SKIP() << "60 are asked; all with --full";
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden-tiny");
  std::vector<std::string> sets;
  for (const char* name : {"math.jsonl", "recall.jsonl", "skill.jsonl", "story.jsonl"}) {
    sets.push_back((folder / name).string());
  }
  expect_recorded_tokens(sets, {}, 590);
}

TEST(EvalExpectations, DecideTheExitCode) {
  const std::vector<std::string> sets = {recorded("skill")};  // all six right
  const auto outcome = [&](const std::vector<std::string>& expectation) {
    std::vector<std::string> more = {"--num-questions", "6"};
    more.insert(more.end(), expectation.begin(), expectation.end());
    return evaluate_tiny(sets, more).outcome;
  };
  EXPECT_EQ(outcome({"--min-correct", "6", "--min-accuracy", "1"}).exit_code, 0);
  const Outcome missed = outcome({"--min-correct", "7"});
  EXPECT_EQ(missed.exit_code, kExitFailure);
  EXPECT_THAT(missed.errors, HasSubstr("6 of 6 answers are right, --min-correct asks for 7"));

  // Answers that end too early are not the recorded ones, and none is right.
  const Outcome cut = outcome({"--max-tokens", "1", "--expect-reference"});
  EXPECT_EQ(cut.exit_code, kExitFailure);
  EXPECT_THAT(cut.errors, HasSubstr("6 of 6 outputs are not the recorded ones"));
  const Outcome inaccurate = outcome({"--max-tokens", "1", "--min-accuracy", "0.5"});
  EXPECT_EQ(inaccurate.exit_code, kExitFailure);
  EXPECT_THAT(inaccurate.errors, HasSubstr("--min-accuracy asks for 0.5"));
}

TEST(EvalExpectations, ThatNothingCouldMeetAreNotMet) {
  const std::vector<std::string> stories = {recorded("story")};  // without right answers
  const Outcome outcome =
      evaluate_tiny(stories, {"--num-questions", "1", "--max-tokens", "1", "--min-correct", "0"})
          .outcome;
  EXPECT_EQ(outcome.exit_code, kExitFailure);
  EXPECT_THAT(outcome.errors, HasSubstr("no question of the sets has an answer"));
}

}  // namespace
}  // namespace heddle::tools

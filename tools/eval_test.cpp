// SPDX-License-Identifier: Apache-2.0
// heddle eval as a whole: the recorded questions of heddle-tiny, and exit codes.
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/server_fixture.h"
#include "support/test_data.h"
#include "tools/cli/subcommand_fixture.h"

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

TEST(RecordedQuestions, TwoRanksGiveTheRecordedTokens) {
  expect_recorded_tokens({recorded("skill"), recorded("math")},
                         {"--exact", "--tp", "2", "--device", "cpu", "--num-questions", "4"}, 8);
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

// A server with a script in place of a model, which asks as the questions do.
class ServedEvalTest : public server::ServerTest {
 protected:
  void SetUp() override {
    engine->script = [](const Request&) { return server::answer_events({"so ", "#### 6"}); };
    options.api_key = "sk-key";
    start();
    url = fmt::format("http://127.0.0.1:{}/v1", server->port());
  }

  [[nodiscard]] static Evaluated evaluate(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    ::testing::internal::CaptureStdout();
    Evaluated evaluated{.outcome = run_captured(kEval, std::move(arguments))};
    const std::string output = ::testing::internal::GetCapturedStdout();
    if (!output.empty()) evaluated.report = Json::parse(output);
    return evaluated;
  }

  static std::string file(const std::string& name, const std::string& text) {
    const std::string path = ::testing::TempDir() + "served_eval_" + name;
    std::ofstream(path) << text;
    return path;
  }

  std::string url;
};

TEST_F(ServedEvalTest, AsksTheServerAndCountsRightAnswers) {
  const std::string chats = file(
      "chats.jsonl",
      R"({"messages": [{"role": "user", "content": "2 * 3"}], "answer": "6", "reference_token_ids": [1]}
{"messages": [{"role": "user", "content": "2 * 4"}], "answer": "8"})");
  const auto [outcome, report] =
      evaluate({"--url", url, "--api-key", "sk-key", chats, "--max-tokens", "9"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(report["total"], 2);
  EXPECT_EQ(report["correct"], 1);
  EXPECT_EQ(report["with_reference"], 0) << "a server shows no tokens";
  EXPECT_GT(report["output_tokens"], 0);
  for (const Request& request : engine->submitted()) {
    EXPECT_EQ(request.sampling.temperature, 0.0F);
    EXPECT_EQ(request.stop.max_new_tokens, 9);
  }
}

TEST_F(ServedEvalTest, ProblemsAreTextsOrChats) {
  const std::string problems = file("problems.jsonl", R"({"question": "2 * 2", "answer": "#### 4"}
{"question": "2 * 3", "answer": "#### 6"})");
  for (const bool is_chat : {false, true}) {
    std::vector<std::string> arguments = {problems, "--url",   url, "--api-key",
                                          "sk-key", "--shots", "1"};
    if (is_chat) arguments.emplace_back("--chat");
    const auto [outcome, report] = evaluate(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_EQ(report["correct"], 1);
    EXPECT_EQ(engine->submitted().back().stop.texts.empty(), is_chat);
  }
}

TEST_F(ServedEvalTest, MistakesAreNamedWithARemedy) {
  const std::string chats =
      file("chats.jsonl", R"({"messages": [{"role": "user", "content": "Hi"}]})");

  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {{"--url", url, chats}, "name a key with --api-key"},
      {{"--url", "http://127.0.0.1:1", chats}, "is the server up?"},
      {{"--url", "ftp://host", chats}, "--url: \"ftp://host\": only http and https"},
      {{"--url", url, "/no/such.jsonl"}, "cannot read the question set /no/such.jsonl"},
      {{"--url", url, "--dtype", "float32", chats}, "--dtype"},
      {{"--url", url, "--expect-reference", chats}, "--expect-reference"},
      {{"--insecure", chats}, "--insecure requires --url"},
  };

  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = evaluate(arguments).outcome;
    EXPECT_NE(outcome.exit_code, 0) << message;
    EXPECT_THAT(outcome.errors, HasSubstr(message));
  }
}

// A port whose connections the kernel takes and nobody answers.
TEST_F(ServedEvalTest, AServerThatNeverAnswersEndsAtTheTimeLimit) {
  const int silent = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(silent, generic, size), 0);
  ASSERT_EQ(::listen(silent, 8), 0);
  ASSERT_EQ(::getsockname(silent, generic, &size), 0);
  const std::string chats = file("two.jsonl",
                                 R"({"messages": [{"role": "user", "content": "Hi"}]}
{"messages": [{"role": "user", "content": "Ho"}]})");
  const std::string problems = file("problems.jsonl", R"({"question": "2 * 2", "answer": "#### 4"}
{"question": "2 * 3", "answer": "#### 6"})");

  const struct {
    const char* scheme;
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {"http", {chats, "--served-model", "m"}, "/v1/chat/completions has not answered in 0.01 s"},
      {"http", {chats, "--served-model", "m", "--parallel", "1"}, "--timeout sets the limit"},
      {"http", {problems, "--served-model", "m", "--shots", "1"}, "/v1/completions has not"},
      {"https", {chats, "--served-model", "m", "--insecure"}, "has not answered in 0.01 s"},
      {"http", {chats}, "its time was up"},
  };

  for (const auto& [scheme, arguments, message] : cases) {
    std::vector<std::string> all = {
        "--url", fmt::format("{}://127.0.0.1:{}", scheme, ntohs(address.sin_port)), "--timeout",
        "0.01"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = evaluate(all).outcome;
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.errors, HasSubstr(message));
  }
  ::close(silent);
}

TEST_F(ServedEvalTest, ThreadsThatCannotBeStartedAreAnError) {
  const std::string chats =
      file("one.jsonl", R"({"messages": [{"role": "user", "content": "Hi"}]})");
  pthread_attr_t before;
  pthread_attr_t vast;
  ASSERT_EQ(::pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(::pthread_attr_init(&vast), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&vast, size_t{1} << 50), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&vast), 0);
  const Outcome outcome =
      evaluate({"--url", url, "--api-key", "sk-key", "--served-model", "m", chats}).outcome;
  ::pthread_setattr_default_np(&before);
  ::pthread_attr_destroy(&vast);
  ::pthread_attr_destroy(&before);
  EXPECT_EQ(outcome.exit_code, kExitFailure);
  EXPECT_THAT(outcome.errors, HasSubstr("no thread can be started"));
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

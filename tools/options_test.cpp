// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_captured.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Settings {
  std::string model_dir;
  std::string host = "127.0.0.1";
  uint16_t port = 30000;
  int32_t threads = 0;
  double keepalive_seconds = 15;
  std::optional<uint64_t> seed;
  std::optional<std::string> tokenize;
  bool chat = false;
  std::string system;
  bool json = false;
  bool quiet = false;
};

Settings parsed;  // by the last command that was right

std::function<int()> declare(Options& options) {
  auto settings = std::make_shared<Settings>();
  options.positional("MODEL_DIR", &settings->model_dir, "", /*required=*/false);
  options.text("--host", &settings->host, "");
  options.value("-p,--port", &settings->port, "");
  options.value("--threads", &settings->threads, ranges::kThreads, "");
  options.value("--sse-keepalive-secs", &settings->keepalive_seconds, ranges::kPeriodSeconds, "");
  options.value("--seed", &settings->seed, "");
  options.value("--tokenize", &settings->tokenize, "");
  options.flag("--chat", &settings->chat, "");
  options.value("--system", &settings->system, "");
  options.flag("--json", &settings->json, "");
  options.flag("--quiet,!--loud", &settings->quiet, "");
  options.has_effect_if(
      "--threads", [settings = settings.get()] { return !settings->quiet; },
      "in silence; drop --quiet");
  options.needs("--system", "--chat");
  options.excludes("--json", "--tokenize");
  return [settings] {
    parsed = *settings;
    return 0;
  };
}

const Subcommand kCommand = {.name = "try", .summary = "", .declare = declare};

Outcome run(std::vector<std::string> arguments) {
  return run_captured(kCommand, std::move(arguments));
}

TEST(OptionsTest, TakesWhatIsWithinRange) {
  ASSERT_EQ(run({"--port", "0", "--threads=8", "--sse-keepalive-secs", "2.5", "--seed",
                 "18446744073709551615", "--tokenize", ""})
                .exit_code,
            0);
  EXPECT_EQ(parsed.port, 0);
  EXPECT_EQ(parsed.threads, 8);
  EXPECT_EQ(parsed.keepalive_seconds, 2.5);
  EXPECT_EQ(parsed.seed, 18446744073709551615u);
  EXPECT_EQ(parsed.tokenize, "");
  EXPECT_EQ(parsed.host, "127.0.0.1");
}

TEST(OptionsTest, AnErrorNamesTheOptionTheValueAndTheRemedy) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--port", "70000"}, "--port: 70000 is not a whole number from 0 to 65535"},
      {{"-p70000"}, "--port: 70000 is not"},
      {{"--threads", "-1"}, "--threads: -1 is not a whole number from 0 to 1024"},
      {{"--threads", "100000"}, "--threads: 100000 is not"},
      {{"--sse-keepalive-secs", "nan"}, "--sse-keepalive-secs: nan is not 0 or a number from 1"},
      {{"--seed", "-1"}, "--seed: -1 is not a whole number from 0 to 18446744073709551615"},
      {{"--seed", "99999999999999999999"}, "--seed: 99999999999999999999 is not"},
      {{"--host", ""}, "--host: \"\" is no value; give one or leave it out"},
      {{""}, "MODEL_DIR: \"\" is no value; give one or leave it out"},
      {{"--system", "be brief"}, "--system requires --chat"},
      {{"--json", "--tokenize", "hi"}, "--tokenize excludes --json"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, kExitUsage) << message;
    EXPECT_THAT(outcome.errors, HasSubstr(message));
  }
}

TEST(OptionsTest, WhatHasNoEffectDependsOnValuesWhereverTheyStand) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"--threads", "2", "--quiet"}, {"--quiet", "--threads", "2"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, kExitUsage);
    EXPECT_THAT(outcome.errors,
                HasSubstr("error: --threads has no effect in silence; drop --quiet, or leave it "
                          "out\n"));
  }
  EXPECT_EQ(run({"--threads", "2", "--loud"}).exit_code, 0);
  EXPECT_EQ(run({"--quiet"}).exit_code, 0);
}

TEST(OptionsTest, OptionsOfOtherServersAreExplained) {
  for (const char* spelling : {"--tp-size", "--tp_size"}) {
    EXPECT_THAT(run({spelling, "2"}).errors,
                AllOf(HasSubstr("there is no option --tp-size"), HasSubstr("--threads")));
  }
  EXPECT_THAT(run({"--max-model-len=4096"}).errors, HasSubstr("--context-length"));
  EXPECT_THAT(run({"--thread", "1"}).errors, HasSubstr("did you mean --threads?"));
}

}  // namespace
}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/cli/subcommand_fixture.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Settings {
  std::string model_dir;
  std::string host = "127.0.0.1";
  std::string eviction = "flops";
  int64_t context = 0;
  int64_t running = 0;
  int64_t parallel = 1;
  int32_t chunk = 512;
  bool cache = true;
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
  options.reserve("--parallel");
  options.text("--host", &settings->host, "");
  options.choice("--eviction", &settings->eviction, {"flops", "lru"}, "");
  options.value("--context-length", &settings->context, "");
  options.value("--max-running-requests", &settings->running, ranges::kCountOrNone, "");
  options.value("--chunked-prefill-tokens,--chunked-prefill-size", &settings->chunk,
                ranges::kChunkTokens, "");
  options.flag("--prefix-cache,!--no-prefix-cache", &settings->cache, "");
  options.accept_familiar();
  options.value("-p,--port", &settings->port, "");
  options.value("--threads", &settings->threads, ranges::kThreads, "");
  options.value("--sse-keepalive-secs", &settings->keepalive_seconds, ranges::kPeriodSeconds, "");
  options.value("--seed", &settings->seed, "");
  options.value("--parallel", &settings->parallel, "");
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

TEST(OptionsTest, ValuesDecideWhetherAnOptionHasAnEffectInAnyOrder) {
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

TEST(OptionsTest, SpellingsOfOtherServersAreTakenWithANote) {
  const Outcome outcome = run({"--max_model_len=4096", "-t", "3", "-np", "8", "--eviction", "lru",
                               "--no-enable-prefix-caching"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(parsed.context, 4096);
  EXPECT_EQ(parsed.threads, 3);
  EXPECT_EQ(parsed.running, 8);
  EXPECT_EQ(parsed.eviction, "lru");
  EXPECT_FALSE(parsed.cache);
  EXPECT_EQ(outcome.errors,
            "note: --max-model-len is --context-length here\n"
            "note: -t is --threads here\n"
            "note: -np is --max-running-requests here\n"
            "note: --no-enable-prefix-caching is --no-prefix-cache here\n");
  EXPECT_EQ(run({"-c", "7", "-b", "256"}).exit_code, 0);
  EXPECT_EQ(parsed.context, 7);
  EXPECT_EQ(parsed.chunk, 256);
}

TEST(OptionsTest, AnOptionOfTheSubcommandIsNoSpellingOfAnother) {
  const Outcome outcome = run({"--parallel", "3", "--seed", "5"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(parsed.parallel, 3);
  EXPECT_EQ(parsed.running, 0);
  EXPECT_EQ(parsed.seed, 5u);
  EXPECT_EQ(outcome.errors, "");
}

TEST(OptionsTest, OptionsThatAskForWhatIsDoneAnywayAreTakenWithANote) {
  const Outcome outcome =
      run({"--dp", "1", "--cpu-offload-gb=0", "--trust-remote-code", "-ngl", "0"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("note: --dp changes nothing: one process serves"),
                                    HasSubstr("note: --cpu-offload-gb changes nothing"),
                                    HasSubstr("note: --trust-remote-code changes nothing"),
                                    HasSubstr("note: -ngl changes nothing")));
  EXPECT_EQ(std::ranges::count(outcome.errors, '\n'), 4) << "one line each";
}

TEST(OptionsTest, TheirOtherValuesAreErrorsWithAdvice) {
  for (const char* spelling : {"--dp-size", "--dp_size"}) {
    const Outcome outcome = run({spelling, "2"});
    EXPECT_EQ(outcome.exit_code, kExitUsage);
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("--dp-size: 2 cannot be"), HasSubstr("--threads")));
  }
  EXPECT_THAT(run({"-ctk", "q8_0"}).errors, HasSubstr("-ctk: q8_0 cannot be"));
  const Outcome other = run({"--torchao-config", "int4wo-128"});
  EXPECT_EQ(other.exit_code, kExitUsage);
  EXPECT_THAT(other.errors, AllOf(HasSubstr("there is no option --torchao-config"),
                                  HasSubstr("--quantization quantises while loading")));
  EXPECT_THAT(run({"--thread", "1"}).errors, HasSubstr("did you mean --threads?"));
}

TEST(OptionsTest, AutoLeavesTheDefault) {
  EXPECT_EQ(run({"--threads", "auto", "--eviction", "auto", "--chunked-prefill-tokens", "auto",
                 "--context-length", "auto", "--seed", "auto"})
                .errors,
            "");
  EXPECT_EQ(parsed.eviction, "flops");
  EXPECT_EQ(parsed.chunk, 512);
  EXPECT_EQ(parsed.threads, 0);
  EXPECT_EQ(run({"--chunked-prefill-size", "-1"}).errors,
            "note: --chunked-prefill-tokens -1 leaves the default, 512\n");
  EXPECT_EQ(parsed.chunk, 512);
  EXPECT_EQ(run({"--eviction", "lfu"}).exit_code, kExitUsage);
}

int num_declared = 0;  // by kOther

std::function<int()> declare_other(Options&) {
  ++num_declared;
  return [] { return 7; };
}

const Subcommand kOther = {
    .name = "other", .summary = "", .declare = declare_other, .alias = "another"};

int run_line(std::vector<std::string> line) {
  std::vector<char*> pointers;
  for (std::string& argument : line) pointers.push_back(argument.data());
  const std::array<const Subcommand*, 2> commands = {&kCommand, &kOther};
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int exit_code = run_program(static_cast<int>(pointers.size()), pointers.data(), commands);
  ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  return exit_code;
}

TEST(OptionsTest, OptionsAreDeclaredWhereTheSubcommandIsNamed) {
  EXPECT_EQ(run_line({"heddle", "other"}), 7);
  EXPECT_EQ(run_line({"heddle", "another"}), 7);
  EXPECT_EQ(run_line({"heddle", "--help", "other"}), 0);
  EXPECT_EQ(num_declared, 3);
  EXPECT_EQ(run_line({"heddle", "--help"}), 0);
  EXPECT_EQ(run_line({"heddle", "try", "--threads", "2"}), 0);
  EXPECT_EQ(num_declared, 3);
  for (const char* const name : {"other", "another", "try"}) {
    EXPECT_EQ(run_line({"heddle", name, "--version"}), 0) << name;
  }
}

TEST(OptionsTest, BehindASubcommandTheNameOfAnotherIsAValue) {
  EXPECT_EQ(run_line({"heddle", "try", "other"}), 0);
  EXPECT_EQ(parsed.model_dir, "other");
}

TEST(OptionsTest, ListsDeclaredOptions) {
  const std::vector<DeclaredOption> options = declared_options(kCommand);
  const auto named = [&](const std::string& name) -> const DeclaredOption& {
    return *std::ranges::find_if(options, [&](const DeclaredOption& option) {
      return std::ranges::count(option.names, name) > 0;
    });
  };
  EXPECT_THAT(named("--port").names, ElementsAre("--port", "-p"));
  EXPECT_EQ(named("--port").default_value, "30000");
  EXPECT_THAT(named("--max-running-requests").names, Contains("-np"));
  EXPECT_THAT(named("--prefix-cache").names, Contains("--no-prefix-cache"));
  EXPECT_EQ(named("--prefix-cache").default_value, "on");
  EXPECT_EQ(named("--chat").default_value, "off");
  EXPECT_EQ(named("--eviction").default_value, "flops");
  EXPECT_EQ(named("--seed").default_value, "");
  EXPECT_FALSE(named("--seed").familiar);
  EXPECT_TRUE(named("--dp").familiar);
}

}  // namespace
}  // namespace heddle::tools

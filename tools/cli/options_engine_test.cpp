// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options_engine.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "support/test_data.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the log of apply().
std::string warnings(const EngineOptions& engine) {
  EngineSettings settings{
      .model_dir = heddle::testing::repository_path("models/heddle-tiny").string(),
      .engine = engine};
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(apply(settings).ok());
  return ::testing::internal::GetCapturedStderr();
}

TEST(EngineSettingsTest, ExactAnswersFromRoundedStatesAreWorthAWarning) {
  EXPECT_THAT(warnings({.exact = true, .cache = {.state_dtype = StateDtype::kInt8}}),
              AllOf(HasSubstr("--exact"), HasSubstr("--state-cache-dtype int8")));
  EXPECT_THAT(warnings({.exact = true, .cache = {.state_dtype = StateDtype::kBfloat16}}),
              HasSubstr("bfloat16"));
  EXPECT_EQ(warnings({.exact = true}), "");
  EXPECT_EQ(
      warnings({.exact = true, .cache = {.enabled = false, .state_dtype = StateDtype::kInt8}}), "");
  EXPECT_EQ(warnings({.cache = {.state_dtype = StateDtype::kInt8}}), "");
}

TEST(EngineSettingsTest, TheWordsForALevelOfTheLogMeanTheSame) {
  const std::string folder = heddle::testing::repository_path("models/heddle-tiny").string();
  for (const char* const level : {"warning", "warn"}) {
    EngineSettings settings{.model_dir = folder, .log_level = level};
    EXPECT_TRUE(apply(settings).ok());
    EXPECT_TRUE(logs(LogLevel::kWarning)) << level;
    EXPECT_FALSE(logs(LogLevel::kInfo)) << level;
  }
  set_log_level(LogLevel::kInfo);
}

TEST(EngineSettingsTest, TheLogAsJsonIsAnObjectALineWhateverASentenceSays) {
  EngineSettings settings{
      .model_dir = heddle::testing::repository_path("models/heddle-tiny").string(),
      .log_format = "json"};
  EXPECT_TRUE(apply(settings).ok());
  ::testing::internal::CaptureStderr();
  const std::string sentences[] = {"plain", R"(a "quoted" \ word)", "two\nlines", "no \xFF UTF-8",
                                   "gr\xC3\xBC\xC3\x9F"};
  for (const std::string& sentence : sentences) log_warning(sentence);
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  set_log_format(LogFormat::kText);
  for (const std::string& sentence : sentences) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(entry.is_object()) << line;
    EXPECT_EQ(entry["level"], "warning");
    EXPECT_THAT(entry["time"].get<std::string>(),
                ::testing::MatchesRegex(R"(....-..-..T..:..:......[+-]..:..)"));
    EXPECT_EQ(entry["message"], sentence == sentences[3] ? "no \xEF\xBF\xBD UTF-8" : sentence);
  }
}

std::string error_of_template(const std::string& file) {
  EngineSettings settings{
      .model_dir = heddle::testing::repository_path("models/heddle-tiny").string(),
      .chat_template = file};
  return apply(settings).message();
}

TEST(EngineSettingsTest, ABadChatTemplateIsNamedBeforeTheModelIsLoaded) {
  EXPECT_THAT(error_of_template("/nowhere/a.jinja"),
              AllOf(HasSubstr("--chat-template"), HasSubstr("/nowhere/a.jinja")));
  const std::string file = ::testing::TempDir() + "options_engine_test.jinja";
  std::ofstream(file) << "{% if messages %}";
  EXPECT_THAT(error_of_template(file),
              AllOf(HasSubstr("--chat-template"), HasSubstr("chat_template:1:4")));
  std::ofstream(file) << "{{ messages[0].content }}";
  EXPECT_EQ(error_of_template(file), "");
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
#include "options_engine.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

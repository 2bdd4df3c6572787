// SPDX-License-Identifier: Apache-2.0
#include "engine/step_log.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/log.h"

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The lines that 40 equal steps that decode write.
std::string line_of(StepLog& log, const StepFacts& step) {
  ::testing::internal::CaptureStderr();
  set_log_level(LogLevel::kDebug);
  for (int i = 0; i < 40; ++i) log.on_step(step, {});
  set_log_level(LogLevel::kInfo);
  return ::testing::internal::GetCapturedStderr();
}

TEST(StepLogTest, TheLineOfDecodeStepsTellsWhatDraftsGained) {
  StepLog log(1000);
  const std::string line = line_of(
      log, {.decode_sequences = 2, .draft_tokens = 6, .accepted_drafts = 3, .seconds = 0.01});
  EXPECT_THAT(line, HasSubstr("500.0 tokens/s"));
  EXPECT_THAT(line, HasSubstr("2.50 tokens a step of a sequence, 0.50 of 240 drafts held"));
  EXPECT_DOUBLE_EQ(log.decode_tokens_per_second(), 500);
  // The next 40 steps stand for themselves.
  const std::string plain = line_of(log, {.decode_sequences = 2, .seconds = 0.01});
  EXPECT_THAT(plain, HasSubstr("200.0 tokens/s"));
  EXPECT_THAT(plain, Not(HasSubstr("drafts")));
}

}  // namespace
}  // namespace heddle::engine

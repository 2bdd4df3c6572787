// SPDX-License-Identifier: Apache-2.0
// heddle verify with several ranks, on recorded logits.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_data.h"
#include "tools/cli/subcommand_fixture.h"

namespace heddle::tools {
namespace {

// In exact mode every way of feeding a text to two ranks gives the same bits and the recorded
// logits.
TEST(Verify, RanksGiveTheRecordedLogitsInExactMode) {
  for (const char* golden : {"qwen3", "mixtral", "gpt_oss"}) {
    SCOPED_TRACE(golden);
    HEDDLE_SHARED_PATH_OR_SKIP(folder, std::string("golden/") + golden);
    ::testing::internal::CaptureStdout();
    const Outcome outcome =
        run_captured(kVerify, {folder.string(), "--exact", "--tp", "2", "--device", "cpu"});
    const std::string table = ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors << table;
    EXPECT_THAT(table, ::testing::HasSubstr(" checks passed."));
  }
}

}  // namespace
}  // namespace heddle::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/option_names.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_data.h"

namespace heddle::tools {
namespace {

using ::testing::StartsWith;

TEST(OptionNamesTest, FieldsAreOptionsAndTheRestStays) {
  EXPECT_EQ(with_option_names("page_size is 3; page_size, too, or page_size."),
            "--page-size is 3; --page-size, too, or --page-size.");
  EXPECT_EQ(with_option_names("models/page_size/config.json: my_page_size, page_size_of"),
            "models/page_size/config.json: my_page_size, page_size_of");
  EXPECT_EQ(with_option_names("the policy of dtypes"), "the policy of dtypes");
  EXPECT_EQ(with_option_names(""), "");
}

TEST(OptionNamesTest, AnEngineThatCannotBeSaysWhichOptionIsWrong) {
  const std::vector<std::pair<EngineOptions, std::string>> cases = {
      {{.cache = {.snapshot_interval = 65}}, "--snapshot-interval is 65"},
      {{.cache = {.state_snapshots = SnapshotPolicy::kNoBuffer}},
       "--state-snapshots no_buffer needs --page-size 1"},
      {{.scheduling = {.policy = QueuePolicy::kLpm, .enable_priority = true}},
       "--enable-priority works with"},
      {{.scheduling = {.enable_priority = true, .aging_seconds = 2}},
       "--priority-aging-secs = 2 needs a --default-priority"},
      {{.page_size = 3}, "--page-size"},
      {{.context_length = 1 << 30}, "--context-length 1073741824 is not within"},
      {{.max_running_requests = 1 << 30}, "--max-running-requests 1073741824 is not within"},
      {{.max_queued_requests = 1 << 30}, "--max-queued-requests is 1073741824"},
      {{.max_total_tokens = int64_t{1} << 50}, "--max-total-tokens"},
      {{.dtype = RunDtype::kBfloat16, .exact = true}, "exact mode computes in float32; --dtype is"},
  };
  for (auto [options, message] : cases) {
    options.model_dir = heddle::testing::repository_path("models/heddle-tiny");
    const auto engine = create_engine(options);
    EXPECT_THAT(engine.status().message(), StartsWith(message));
  }
}

TEST(OptionNamesTest, OtherErrorsStay) {
  const auto engine = create_engine({.model_dir = "no/page_size"});
  EXPECT_EQ(engine.status().message(),
            Engine::create({.model_dir = "no/page_size"}).status().message());
}

}  // namespace
}  // namespace heddle::tools

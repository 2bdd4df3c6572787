// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_offline.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"
#include "tools/cli/output_file.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BenchOfflineTest, APrefillIsAtMostTheContext) {
  OfflineOptions options{.prefill_tokens = {512, 4096}, .decode_batches = {}};
  EXPECT_TRUE(check_offline(options, 4096).ok());
  EXPECT_THAT(check_offline(options, 4095).message(),
              AllOf(HasSubstr("--prefill 4096"), HasSubstr("4095 tokens")));
}

// The context, every step of every repeat, and the one that warms up.
TEST(BenchOfflineTest, DecodingEndsWithinTheContext) {
  OfflineOptions options{.prefill_tokens = {},
                         .decode_batches = {1},
                         .decode_context = 100,
                         .decode_steps = 10,
                         .repeats = 3};
  EXPECT_TRUE(check_offline(options, 131).ok());
  EXPECT_THAT(check_offline(options, 130).message(),
              AllOf(HasSubstr("--context 100 and --steps 10 for --repeats 3 need 131 tokens"),
                    HasSubstr("context is 130")));
  options.decode_batches.clear();
  EXPECT_TRUE(check_offline(options, 130).ok()) << "nothing decodes";
}

TEST(BenchReportTest, AReportReplacesAnEarlierOneAndItsPlaceIsCheckedFirst) {
  const checkpoint::testing::TemporaryFolder folder;
  const auto status = [](const std::filesystem::path& file) {
    return check_bench_output({.file = file.string()});
  };
  EXPECT_TRUE(check_bench_output({}).ok());
  EXPECT_TRUE(status(folder.path() / "new.json").ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "new.json")) << "asking changes nothing";
  const auto earlier = folder.write("earlier.json", "{}\n");
  EXPECT_TRUE(status(earlier).ok());
  EXPECT_EQ(std::filesystem::file_size(earlier), 3u);
  EXPECT_THAT(status(folder.path()).message(), HasSubstr("it is a folder"));
  EXPECT_THAT(status(folder.path() / "none" / "r.json").message(),
              HasSubstr("its folder is not there"));
}

}  // namespace
}  // namespace heddle::tools

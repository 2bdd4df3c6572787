// SPDX-License-Identifier: Apache-2.0
#include "weight_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/quantise_checkpoint.h"
#include "checkpoint/test_files.h"
#include "models/registry.h"
#include "support/test_data.h"

namespace heddle::tools {
namespace {

namespace fs = std::filesystem;

WeightSize size_of(const fs::path& folder, DType dtype = DType::kBf16) {
  const auto config = models::load_config(folder);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  if (!config.ok()) return {};
  return weight_size(folder, *config, *models::create_model(*config), dtype);
}

TEST(WeightSize, IsThatOfTheParametersWhereNothingIsQuantised) {
  const fs::path folder = testing::repository_path("tests/golden/qwen2");
  const WeightSize half = size_of(folder);
  EXPECT_EQ(half.form, "as bfloat16");
  EXPECT_EQ(size_of(folder, DType::kF32).bytes, 2 * half.bytes);
}

TEST(WeightSize, IsThatOfTheFilesWhereTheyAreQuantised) {
  const checkpoint::testing::TemporaryFolder folder;
  const fs::path output = folder.path() / "int8";
  const auto report =
      checkpoint::quantise_checkpoint({.source = testing::repository_path("tests/golden/qwen2"),
                                       .output = output,
                                       .format = checkpoint::QuantisedFormat::kInt8});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const WeightSize quantised = size_of(output);
  EXPECT_EQ(quantised.form, "as stored, quantised");
  EXPECT_EQ(quantised.bytes, report->output_bytes);

  const fs::path bare = folder.path() / "bare";
  fs::create_directory(bare);
  fs::copy_file(output / "config.json", bare / "config.json");
  EXPECT_EQ(size_of(bare).bytes, size_of(testing::repository_path("tests/golden/qwen2")).bytes);
  EXPECT_EQ(size_of(bare).form, "as bfloat16, unquantised: no files to count");
}

}  // namespace
}  // namespace heddle::tools

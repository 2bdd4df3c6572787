// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/adapter_fixture.h"
#include "checkpoint/checkpoint_files.h"
#include "support/dense_model.h"
#include "tools/cli/subcommand_fixture.h"

namespace heddle::tools {
namespace {

namespace fs = std::filesystem;

TEST(Merge, WritesAModelWithTwoScaledAdapters) {
  const checkpoint::testing::TemporaryFolder folder;
  const std::string module = "model.layers.1.self_attn.q_proj";
  for (uint32_t i = 0; i < 2; ++i) {
    checkpoint::testing::NamedTensors tensors;
    tensors.emplace(module + ".lora_A.weight", checkpoint::testing::uneven({1, 64}, 1));
    tensors.emplace(module + ".lora_B.weight", checkpoint::testing::uneven({64, 1}, 2));
    checkpoint::testing::write_adapter(folder.path() / std::to_string(i),
                                       R"({"r": 1, "lora_alpha": 2})", tensors);
  }
  const fs::path out = folder.path() / "out";
  ::testing::internal::CaptureStdout();
  const Outcome outcome =
      run_captured(kMerge, {testing::dense_model(), folder.path() / "0", folder.path() / "1", out,
                            "--scale", "0.75", "--scale", "-0.25", "--dtype", "float32", "--json"});
  const auto report = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(report["adapters"], 2);
  EXPECT_EQ(report["changed"], 1);
  const auto base = checkpoint::CheckpointFiles::open(testing::dense_model());
  const auto merged = checkpoint::CheckpointFiles::open(out);
  ASSERT_TRUE(base.ok() && merged.ok());
  const auto read = [&](const checkpoint::CheckpointFiles& files) {
    Tensor weight({64, 64}, DType::kF32);
    files.read(*files.find({.name = module + ".weight", .shape = {}}), 0, 64 * 64, DType::kF32,
               weight.span<float>().data());
    return weight;
  };
  const Tensor before = read(*base), after = read(*merged);
  const Tensor a = checkpoint::testing::uneven({1, 64}, 1);
  const Tensor b = checkpoint::testing::uneven({64, 1}, 2);
  for (size_t i = 0; i < 64 * 64; ++i) {
    // The scales are exact in binary: 2 * (0.75 - 0.25) = 1.
    const double expected =
        before.span<float>()[i] + double{b.span<float>()[i / 64]} * a.span<float>()[i % 64];
    EXPECT_FLOAT_EQ(after.span<float>()[i], static_cast<float>(expected));
  }
}

}  // namespace
}  // namespace heddle::tools

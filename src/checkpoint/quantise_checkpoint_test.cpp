// SPDX-License-Identifier: Apache-2.0
// Writing a quantised copy: its folder's name, stopped runs, killed runs. The contents are
// tested with loading (quantised_load_test.cpp).
#include "checkpoint/quantise_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"
#include "core/tensor.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

// A model of two matrices in a shard each, and where its copy goes.
class QuantiseCheckpointRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(source_);
    const Tensor weight({16, 128}, DType::kBf16);
    const std::vector<NamedTensor> named = {{"model.layers.0.mlp.up_proj.weight", weight.view()},
                                            {"model.layers.1.mlp.up_proj.weight", weight.view()}};
    ASSERT_TRUE(write_safetensors(source_ / "model.safetensors", named).ok());
    std::ofstream(source_ / "config.json") << R"({"model_type": "llama"})";
  }

  [[nodiscard]] Status run(const std::filesystem::path& output, WriteProgress progress = {}) const {
    return quantise_checkpoint({.source = source_,
                                .output = output,
                                .format = QuantisedFormat::kInt8,
                                .shard_bytes = 1,
                                .progress = std::move(progress)})
        .status();
  }

  [[nodiscard]] static std::vector<std::string> files_in(const std::filesystem::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }

  const testing::TemporaryFolder folder_;
  const std::filesystem::path source_ = folder_.path() / "source";
  const std::filesystem::path output_ = folder_.path() / "out";
  const std::vector<std::string> finished_ = {"config.json", "model-00001-of-00002.safetensors",
                                              "model-00002-of-00002.safetensors",
                                              "model.safetensors.index.json"};
};

TEST_F(QuantiseCheckpointRunTest, ASlashAtTheEndOfTheOutputChangesNothing) {
  ASSERT_TRUE(run(folder_.path() / "out" / "").ok());
  EXPECT_EQ(files_in(output_), finished_);
  EXPECT_EQ(files_in(folder_.path()), (std::vector<std::string>{"out", "source"}));
}

TEST_F(QuantiseCheckpointRunTest, AnOutputWithoutANameIsRefusedBeforeAnyWork) {
  const Status status = run("", [](int64_t, int64_t) {
    ADD_FAILURE() << "work was done";
    return ok_status();
  });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("name the folder to make"));
}

TEST_F(QuantiseCheckpointRunTest, ALinkThatLeadsNowhereIsNoFreeName) {
  std::filesystem::create_symlink(folder_.path() / "nothing", output_);
  EXPECT_THAT(run(output_).message(), HasSubstr("exists; remove it"));
}

TEST_F(QuantiseCheckpointRunTest, AStoppedRunGoesOnAndWhatAKilledOneWasWritingIsNotShipped) {
  int calls = 0;
  ASSERT_EQ(run(output_,
                [&](int64_t, int64_t) { return ++calls < 2 ? ok_status() : cancelled("enough"); })
                .code(),
            StatusCode::kCancelled);
  const auto partial = folder_.path() / "out.partial";
  EXPECT_EQ(files_in(partial),
            (std::vector<std::string>{"model-00001-of-00002.safetensors", "quantize_plan.json"}));
  std::ofstream(partial / "model-00002-of-00002.safetensors.4711.tmp") << "half a shard";
  ASSERT_TRUE(run(output_).ok());
  EXPECT_EQ(files_in(output_), finished_);
}

}  // namespace
}  // namespace heddle::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "runner/load/choose_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"

namespace heddle::runner {
namespace {

using ::testing::HasSubstr;
using Kind = DeviceRequest::Kind;

TEST(ChooseDevice, NamesAreReadAndOthersRefused) {
  EXPECT_EQ(parse_device("auto")->kind, Kind::kAuto);
  EXPECT_EQ(parse_device("cpu")->kind, Kind::kCpu);
  EXPECT_EQ(parse_device("cuda")->cuda_index, 0);
  EXPECT_EQ(parse_device("cuda:3")->kind, Kind::kCuda);
  EXPECT_EQ(parse_device("cuda:3")->cuda_index, 3);
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "CPU"}) {
    EXPECT_THAT(parse_device(name).status().message(), HasSubstr("use auto, cpu, cuda or cuda:N"));
  }
}

TEST(ChooseDevice, TheCpuIsTakenWhereItIsAskedFor) {
  const Result<ChosenDevice> chosen = choose_device({.kind = Kind::kCpu}, 2, /*exact=*/true);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->reason, "asked for");
  EXPECT_TRUE(chosen->compute->context().exact);
  EXPECT_TRUE(chosen->compute->shares_memory_with_host());
  ASSERT_NE(chosen->compute->pool(), nullptr);
  EXPECT_EQ(chosen->compute->pool()->num_threads(), 2);
}

TEST(ChooseDevice, WithoutAGpuAutoTakesTheCpuAndSaysWhyAndCudaIsAnErrorWithTheSameReason) {
  const auto gpu = device::open_cuda_device(0);
  if (gpu.ok()) GTEST_SKIP() << "there is one";
  const Result<ChosenDevice> chosen = choose_device({.kind = Kind::kAuto}, 1, false);
  ASSERT_TRUE(chosen.ok());
  EXPECT_TRUE(chosen->compute->shares_memory_with_host());
  EXPECT_EQ(chosen->reason, "CUDA is not used: " + gpu.status().message());
  const Status refused = choose_device({.kind = Kind::kCuda}, 1, false).status();
  EXPECT_EQ(refused.message(),
            "device cuda:0: " + gpu.status().message() + "; cpu computes without a GPU");
}

TEST(ChooseDevice, AModelThatDoesNotFitFallsBackWithTheReason) {
  const Result<ChosenDevice> cpu = fall_back_to_cpu(resource_exhausted("too large"), 1, false);
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(cpu->reason, "CUDA is not used: too large");
}

}  // namespace
}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/op_benchmark.h"

#include <gtest/gtest.h>

#include "ops/benchmark/cold_memory.h"

namespace heddle::ops {

namespace {

TEST(OpBenchmarkTest, CountsWhatARunDoesPerSecond) {
  int runs = 0;
  const OpBenchmark benchmark{
      .name = "count", .shape = "1", .bytes = 1000, .flops = 500, .run = [&runs] { ++runs; }};
  const Measurement result = measure(benchmark, 0.0);
  EXPECT_EQ(runs, 10);  // one to warm up
  EXPECT_LE(result.best_seconds, result.median_seconds);
  EXPECT_DOUBLE_EQ(result.gb_per_s, 1000 / result.median_seconds * 1e-9);
  EXPECT_DOUBLE_EQ(result.gflops, 500 / result.median_seconds * 1e-9);
}

TEST(OpBenchmarkTest, TheFloorIsTheSlowerOfMemoryAndArithmetic) {
  const Roofline roofline{
      .num_threads = 1, .read_gb_per_s = 10, .float_gflops = 100, .bf16_gflops = 200};
  EXPECT_DOUBLE_EQ(
      roofline.floor_seconds({.name = "", .shape = "", .bytes = 10e9, .flops = 1, .run = {}}), 1.0);
  EXPECT_DOUBLE_EQ(
      roofline.floor_seconds({.name = "", .shape = "", .bytes = 1, .flops = 400e9, .run = {}}),
      2.0);
}

TEST(ColdMemoryTest, WalksThroughItsMemoryAndStartsAgain) {
  ColdMemory memory(10000);
  EXPECT_EQ(memory.size(), 12288);
  const auto* first = static_cast<const char*>(memory.next(5000));
  const auto* second = static_cast<const char*>(memory.next(5000));
  EXPECT_EQ(second - first, 5056);
  EXPECT_EQ(memory.next(5000), first);
}

}  // namespace

}  // namespace heddle::ops

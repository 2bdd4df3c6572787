// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/op_benchmark.h"

#include <set>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/roofline.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

class AllBenchmarksTest : public ::testing::Test {
 protected:
  std::set<std::string> names_matching(std::string_view filter) {
    std::set<std::string> names;
    for (const OpBenchmark& benchmark : benchmarks_matching(context_, filter)) {
      names.insert(benchmark.name);
    }
    return names;
  }

  device::ThreadPool pool_{1};
  CpuContext context_{pool_};
};

TEST_F(AllBenchmarksTest, MeasureEveryRegisteredOp) {
  const std::set<std::string> measured = names_matching("");
  for (const auto& [name, op] : builtin_ops().all()) {
    EXPECT_THAT(measured, Contains(std::string(name)));
  }
}

TEST_F(AllBenchmarksTest, SayWhatMustBeMovedAndTheShape) {
  for (const OpBenchmark& benchmark : benchmarks_matching(context_, "")) {
    EXPECT_GT(benchmark.bytes, 0) << benchmark.name;
    EXPECT_FALSE(benchmark.shape.empty()) << benchmark.name;
  }
}

TEST_F(AllBenchmarksTest, AreFoundByPartsOfTheNameOfAnOpOrItsFamily) {
  EXPECT_THAT(names_matching("rms_norm"),
              ElementsAre("add_rms_norm", "gated_rms_norm", "rms_norm", "sigmoid_gated_rms_norm"));
  EXPECT_THAT(names_matching("layout"),
              ElementsAre("columns", "concat", "join_rows", "logit_rows"));
  EXPECT_THAT(names_matching("no such op"), IsEmpty());
}

}  // namespace

}  // namespace heddle::ops

// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/all_benchmarks.h"

#include <set>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/registry.h"

namespace heddle::ops {

namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
  EXPECT_THAT(names_matching("layout"), ElementsAre("columns", "concat", "logit_rows"));
  EXPECT_THAT(names_matching("no such op"), IsEmpty());
}

}  // namespace

}  // namespace heddle::ops

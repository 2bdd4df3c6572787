// SPDX-License-Identifier: Apache-2.0
// Memory plan and executor.
#include "graph/program.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "graph/graph_fixture.h"
#include "support/allocation_count.h"

namespace heddle::graph {
namespace {

using testing::registry;
using testing::TestBuilder;

// A random program of elementwise ops, splits, views, concatenations, in-place changes and
// workspaces.
Graph random_graph(TestBuilder& g, std::mt19937& random) {
  std::vector<Value> narrow = {g.x("a"), g.x("b")};
  const auto pick = [&] { return narrow[random() % narrow.size()]; };
  for (int i = 0; i < 25; ++i) {
    switch (random() % 7) {
      case 0:
        narrow.push_back(g.add(pick(), pick()));
        break;
      case 1:
        narrow.push_back(g.sigmoid(pick()));
        break;
      case 2:
        narrow.push_back(g.apply1("scratchy", {pick()}));
        break;
      case 3: {
        const Value wide = g.concat(g.sigmoid(pick()), g.sigmoid(pick()));
        for (const Value part : g.split(g.sigmoid(wide), {8, 8})) narrow.push_back(part);
        break;
      }
      case 4:
        narrow.push_back(g.apply1("mixer", {pick()}));
        break;
      case 5:
        narrow.push_back(g.rms_norm(g.add(pick(), pick()), "norm", 1e-6));
        break;
      default:
        narrow.push_back(g.apply1("increment", {g.sigmoid(pick())}));
    }
  }
  g.output(g.add(pick(), narrow.back()), "y");
  return std::move(g.finish()).value();
}

void fill(Tensor& a, Tensor& b, int64_t num_tokens) {
  for (int64_t i = 0; i < num_tokens * 8; ++i) {
    a.span<float>()[static_cast<size_t>(i)] = std::sin(static_cast<float>(i));
    b.span<float>()[static_cast<size_t>(i)] = std::cos(static_cast<float>(i));
  }
}

std::vector<float> run(Executor& executor, ops::Context& context, int64_t num_tokens) {
  Tensor a({num_tokens, 8}, DType::kF32);
  Tensor b({num_tokens, 8}, DType::kF32);
  fill(a, b, num_tokens);
  const std::array<TensorView, 2> inputs = {a.view(), b.view()};
  const Status status = executor.run(context, {}, {.tokens = num_tokens}, inputs);
  EXPECT_TRUE(status.ok()) << status.to_string();
  const TensorView y = executor.output(0);
  return {y.as<float>(), y.as<float>() + y.num_elements()};
}

TEST(MemoryPlan, NeverOverlapsValuesThatLiveAtOnce) {
  device::ThreadPool pool(1);
  const ops::CpuContext context(pool);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed = {}", seed));
    std::mt19937 random(seed);
    TestBuilder g;
    const Result<Program> program = compile(random_graph(g, random), registry(), context,
                                            {.largest = {.tokens = 33, .logits = 1}});
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    const Status status = check_plan(program->placed, program->memory);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

TEST(MemoryPlan, CheckFindsAnOverlap) {
  TestBuilder g;
  const Value a = g.sigmoid(g.x());
  g.output(g.add(a, g.sigmoid(a)), "y");
  device::ThreadPool pool(1);
  const ops::CpuContext context(pool);
  Result<Program> program =
      compile(std::move(g.finish()).value(), registry(), context, {.largest = {.tokens = 9}});
  ASSERT_TRUE(program.ok());
  EXPECT_TRUE(check_plan(program->placed, program->memory).ok());
  for (int64_t& offset : program->memory.offset) {
    if (offset > 0) offset = 0;
  }
  EXPECT_THAT(check_plan(program->placed, program->memory).message(),
              ::testing::HasSubstr("live at once"));
}

TEST(Executor, GivesTheSameBitsFusedOrNotAndWhateverTheArenaHeld) {
  device::CpuDevice cpu(2);
  ops::CpuContext context(cpu.pool());
  const std::unique_ptr<device::Stream> stream = cpu.create_stream().value();
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed = {}", seed));
    std::vector<std::vector<float>> results;
    for (const bool fused : {false, true}) {
      std::mt19937 random(seed);
      TestBuilder g;
      Result<Program> program = compile(random_graph(g, random), registry(), context,
                                        {.largest = {.tokens = 33, .logits = 1}, .fuse = fused});
      ASSERT_TRUE(program.ok());
      Result<Executor> executor = Executor::create(std::move(*program), cpu);
      ASSERT_TRUE(executor.ok());
      for (const int pattern : {0x00, 0xff}) {
        for (const int64_t num_tokens : {33, 1, 5}) {
          ASSERT_TRUE(executor->poison(*stream, static_cast<std::byte>(pattern)).ok());
          results.push_back(run(*executor, context, num_tokens));
        }
      }
    }
    for (size_t i = 3; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 3]);
  }
}

TEST(Executor, RowsOfPaddingChangeNoOtherRowAndSplitsDoNotSeeThem) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kPadding = 4;
  const std::array<int32_t, 2> starts{0, kRows};
  const ops::ForwardContext batch{.query_start = starts};
  const ops::ForwardContext padded;  // what the others see, which do not look at it here
  device::CpuDevice cpu(1);
  ops::CpuContext context(cpu.pool());
  const std::unique_ptr<device::Stream> stream = cpu.create_stream().value();
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed = {}", seed));
    std::mt19937 random(seed);
    TestBuilder g;
    Result<Program> program = compile(random_graph(g, random), registry(), context,
                                      {.largest = {.tokens = kRows + kPadding, .logits = 1}});
    ASSERT_TRUE(program.ok());
    Result<Executor> executor = Executor::create(std::move(*program), cpu);
    ASSERT_TRUE(executor.ok());
    const std::vector<float> expected = run(*executor, context, kRows);
    ASSERT_TRUE(executor->poison(*stream, std::byte{0xff}).ok());
    Tensor a({kRows + kPadding, 8}, DType::kF32);
    Tensor b({kRows + kPadding, 8}, DType::kF32);
    std::ranges::fill(a.span<float>(), std::nanf(""));
    std::ranges::fill(b.span<float>(), std::nanf(""));
    fill(a, b, kRows);
    const std::array<TensorView, 2> inputs = {a.view(), b.view()};
    ASSERT_TRUE(executor->set_extents({.tokens = kRows + kPadding}, kPadding).ok());
    executor->set_inputs(inputs);
    for (const Segment& segment : executor->program().segments) {
      const Status status = executor->launch(context, segment.split ? batch : padded, segment);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    const TensorView y = executor->output(0);
    EXPECT_EQ(y.shape[0], kRows + kPadding);
    EXPECT_EQ(std::vector(y.as<float>(), y.as<float>() + expected.size()), expected);
  }
}

TEST(Executor, AllocatesNothingAfterTheFirstRun) {
  if (!heddle::testing::AllocationCount::supported())
    GTEST_SKIP() << "a sanitizer owns operator new";
  TestBuilder g;
  const Value a = g.rms_norm(g.add(g.x("a"), g.x("b")), "norm", 1e-6);
  g.output(g.apply1("scratchy", {g.sigmoid(a)}), "y");
  device::CpuDevice cpu(2);
  ops::CpuContext context(cpu.pool());
  Result<Program> program =
      compile(std::move(g.finish()).value(), registry(), context, {.largest = {.tokens = 64}});
  ASSERT_TRUE(program.ok());
  Result<Executor> executor = Executor::create(std::move(*program), cpu);
  ASSERT_TRUE(executor.ok());
  const Tensor x({64, 8}, DType::kF32);
  const std::array<TensorView, 2> inputs = {x.view(), x.view()};
  ASSERT_TRUE(executor->run(context, {}, {.tokens = 64}, inputs).ok());
  const heddle::testing::AllocationCount allocations;
  ASSERT_TRUE(executor->run(context, {}, {.tokens = 64}, inputs).ok());
  ASSERT_TRUE(executor->run(context, {}, {.tokens = 64}, inputs).ok());
  EXPECT_EQ(allocations.count(), 0);
}

TEST(Executor, RefusesAStepLargerThanTheProgramWasMadeFor) {
  TestBuilder g;
  g.output(g.sigmoid(g.x()), "y");
  device::CpuDevice cpu(1);
  ops::CpuContext context(cpu.pool());
  Result<Program> program =
      compile(std::move(g.finish()).value(), registry(), context, {.largest = {.tokens = 4}});
  Result<Executor> executor = Executor::create(std::move(*program), cpu);
  const Tensor x({5, 8}, DType::kF32);
  const std::array<TensorView, 1> inputs = {x.view()};
  EXPECT_EQ(
      executor->run(context, {}, {.tokens = 5}, inputs).message(),
      "a step of 5 tokens, 0 logit rows and 0 sequences; the program was made for 4, 0 and 0");
}

}  // namespace
}  // namespace heddle::graph

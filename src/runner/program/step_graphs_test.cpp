// SPDX-License-Identifier: Apache-2.0
#include "runner/program/step_graphs.h"

#include <array>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "graph/graph_fixture.h"

namespace heddle::runner {
namespace {

struct FakeWork final : device::CapturedWork {
  explicit FakeWork(int recorded_launches) : launches(recorded_launches) {}

  int launches;
};

// Counts what runs eagerly, and what runs through recorded work.
class FakeStream final : public device::Stream {
 public:
  Status copy(void*, const void*, int64_t) override { return {}; }

  Status fill(void*, std::byte, int64_t) override { return {}; }

  Status discard(void*, int64_t) override { return {}; }

  Status record(device::Event&) override { return {}; }

  Status wait_for(const device::Event&) override { return {}; }

  Status synchronize() override { return {}; }

  [[nodiscard]] Result<bool> is_idle() override { return true; }

  Status begin_capture() override {
    recording_ = 0;
    capturing_ = true;
    return {};
  }

  Result<std::unique_ptr<device::CapturedWork>> end_capture() override {
    capturing_ = false;
    if (refuses) return internal_error("an op waits for the device");
    return std::unique_ptr<device::CapturedWork>(std::make_unique<FakeWork>(recording_));
  }

  Status launch(const device::CapturedWork& work) override {
    replayed += static_cast<const FakeWork&>(work).launches;
    return {};
  }

  void enqueue() { ++(capturing_ ? recording_ : eager); }

  int eager = 0;
  int replayed = 0;
  bool refuses = false;

 private:
  int recording_ = 0;
  bool capturing_ = false;
};

class StepGraphsTest : public ::testing::Test {
 protected:
  StepGraphsTest() { use_pool(pools_[0]); }

  void use_pool(float& pool) {
    layers_[0].k = MutableTensorView(&pool, DType::kF32, Shape{1, 1, 1, 1});
    forward_.kv_layers = layers_;
  }

  void step(int64_t rows, int64_t width = 4, int64_t rows_each = 1) {
    const StepGraphs::Shape shape{
        .rows = rows, .sequences = rows / rows_each, .logits = rows, .page_table_width = width};
    static constexpr graph::Segment kWhole{.end = 100};
    run(shape, {&kWhole, 1});
  }

  void run(const StepGraphs::Shape& shape, std::span<const graph::Segment> segments) {
    const Status status =
        graphs_.run(stream_, shape, forward_, segments, [&](const graph::Segment&) {
          stream_.enqueue();
          return launch_status_;
        });
    EXPECT_EQ(status.code(), launch_status_.code());
  }

  std::array<float, 2> pools_{};
  std::array<ops::KvLayer, 1> layers_;
  ops::ForwardContext forward_;
  FakeStream stream_;
  Status launch_status_;
  StepGraphs graphs_;
};

TEST_F(StepGraphsTest, AShapeIsCapturedWhenItComesTheSecondTime) {
  step(1);
  EXPECT_EQ(std::pair(stream_.eager, stream_.replayed), std::pair(1, 0));
  step(1);
  step(1);
  EXPECT_EQ(std::pair(stream_.eager, stream_.replayed), std::pair(1, 2));
  step(2);
  step(1, 8);
  step(2, 4, /*rows_each=*/2);
  EXPECT_EQ(std::pair(stream_.eager, stream_.replayed), std::pair(4, 2))
      << "other rows, wider tables and fewer sequences are other shapes";
  EXPECT_EQ(graphs_.num_captured(), 1);
}

// Both are captured with as many rows of logits, but in one a norm writes them and in the other
// they are copied.
TEST_F(StepGraphsTest, StepsThatWantAllRowsAreOthersThanThoseThatWantAsMany) {
  static constexpr graph::Segment kWhole{.end = 100};
  StepGraphs::Shape shape{.rows = 8, .sequences = 4, .logits = 8, .page_table_width = 4};
  for (const bool wants_all_rows : {false, true, false, true}) {
    shape.wants_all_rows = wants_all_rows;
    run(shape, {&kWhole, 1});
  }
  EXPECT_EQ(std::pair(stream_.eager, stream_.replayed), std::pair(2, 2));
  EXPECT_EQ(graphs_.num_captured(), 2);
}

TEST_F(StepGraphsTest, TheFirstStepsOfAShapeWarmUp) {
  step(1);
  EXPECT_TRUE(graphs_.warmed_up()) << "eager";
  step(1);
  EXPECT_TRUE(graphs_.warmed_up()) << "captured";
  step(1);
  EXPECT_FALSE(graphs_.warmed_up());
  step(2);
  EXPECT_TRUE(graphs_.warmed_up());
}

TEST_F(StepGraphsTest, OfSeveralSegmentsThoseAreCapturedThatAreNeitherSplitNorShort) {
  const std::array<graph::Segment, 4> segments{{{.begin = 0, .end = 5},
                                                {.begin = 5, .end = 15, .split = true},
                                                {.begin = 15, .end = 17},
                                                {.begin = 17, .end = 20}}};
  run({.rows = 24}, segments);
  EXPECT_EQ(std::pair(stream_.eager, stream_.replayed), std::pair(4, 0));
  run({.rows = 24}, segments);
  run({.rows = 24}, segments);
  EXPECT_EQ(std::pair(stream_.eager, stream_.replayed), std::pair(4 + 2 * 2, 2 * 2));
  EXPECT_EQ(graphs_.num_captured(), 1);
}

TEST_F(StepGraphsTest, KnowsWhetherALaunchIsRecorded) {
  static constexpr graph::Segment kWhole{.end = 100};
  std::vector<bool> recorded;
  for (int i = 0; i < 3; ++i) {
    const Status status =
        graphs_.run(stream_, {.rows = 1}, forward_, {&kWhole, 1}, [&](const graph::Segment&) {
          recorded.push_back(graphs_.is_capturing());
          return Status();
        });
    EXPECT_TRUE(status.ok());
  }
  EXPECT_EQ(recorded, (std::vector<bool>{false, true}));
}

TEST_F(StepGraphsTest, OtherPoolsMakeAllForgotten) {
  step(1);
  step(1);
  use_pool(pools_[1]);
  step(1);
  EXPECT_EQ(graphs_.num_captured(), 0);
  EXPECT_EQ(std::pair(stream_.eager, stream_.replayed), std::pair(2, 1));
  step(1);
  EXPECT_EQ(graphs_.num_captured(), 1);
}

TEST_F(StepGraphsTest, AfterACaptureThatFailedStepsRunEagerly) {
  step(1);
  stream_.refuses = true;
  for (int i = 0; i < 3; ++i) step(1);
  EXPECT_EQ(std::pair(stream_.eager, stream_.replayed), std::pair(4, 0));
  EXPECT_EQ(graphs_.num_captured(), 0);
  EXPECT_FALSE(graphs_.warmed_up()) << "they do not become faster";
}

TEST_F(StepGraphsTest, AFailingLaunchIsTheStepsError) {
  launch_status_ = device_lost("gone");
  step(1);
  step(1);  // fails while it is recorded, then eagerly
  EXPECT_EQ(stream_.replayed, 0);
}

TEST_F(StepGraphsTest, KeepsABoundedNumberOfShapes) {
  for (int64_t rows = 1; rows <= 300; ++rows) {
    step(rows);
    step(rows);
  }
  EXPECT_LE(graphs_.num_captured(), 128);
  step(300);
  EXPECT_EQ(std::pair(stream_.eager, stream_.replayed), std::pair(300, 301)) << "the newest stays";
}

// Steps of x -> sigmoid -> sigmoid -> sigmoid, whose x may lie elsewhere.
class ReplayCheckTest : public ::testing::Test {
 protected:
  static graph::Executor executor(device::CpuDevice& cpu, const ops::Context& context) {
    graph::testing::TestBuilder g;
    const graph::GraphScope scope(g, "layers.7.");
    g.output(g.sigmoid(g.sigmoid(g.sigmoid(g.x()))), "y");
    return graph::Executor::create(graph::compile(g.finish().value(), graph::testing::registry(),
                                                  context, {.largest = {.tokens = 2}})
                                       .value(),
                                   cpu)
        .value();
  }

  Status step(const float* x, const ops::DeviceBatch& batch = {}, bool whole = true) {
    HEDDLE_RETURN_IF_ERROR(executor_.set_extents({.tokens = 2}));
    const std::array<TensorView, 1> inputs = {TensorView(x, DType::kF32, Shape{2, 8})};
    executor_.set_inputs(inputs);
    const std::array<graph::Segment, 1> segments = {executor_.whole()};
    return graphs_.run(stream_, {.rows = 2, .sequences = whole ? 2 : 0}, {.batch = batch}, segments,
                       [](const graph::Segment&) { return Status(); });
  }

  device::CpuDevice cpu_{1};
  ops::CpuContext context_{cpu_.pool()};
  graph::Executor executor_ = executor(cpu_, context_);
  ReplayCheck check_{executor_};
  FakeStream stream_;
  StepGraphs graphs_{&check_};
  std::array<float, 16> x_{}, other_{};
  std::array<int32_t, 2> array_{};
};

TEST_F(ReplayCheckTest, TensorsThatStayWhereTheyWereAreReadAgain) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(step(x_.data()).ok());
  EXPECT_EQ(graphs_.num_captured(), 1);
}

TEST_F(ReplayCheckTest, ATensorThatMovedIsRefusedWithTheNameOfTheNodeThatReadsIt) {
  ASSERT_TRUE(step(other_.data()).ok()) << "eager steps leave nothing to compare";
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(step(x_.data()).ok());
  const Status status = step(other_.data());
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("layers.7.sigmoid took"));
  for (const float* x : {x_.data(), other_.data()}) {
    EXPECT_THAT(status.message(),
                ::testing::HasSubstr(fmt::format("{:#x}", reinterpret_cast<uintptr_t>(x))));
  }
  EXPECT_TRUE(step(x_.data()).ok());
}

TEST_F(ReplayCheckTest, AnArrayOfTheBatchThatMovedIsRefused) {
  const ops::DeviceBatch batch{.kv_lens = array_.data()}, other{.kv_lens = array_.data() + 1};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(step(x_.data(), batch).ok());
  EXPECT_THAT(step(x_.data(), other).message(), ::testing::HasSubstr("the batch's kv_lens took"));
}

// Ops between splits read none of the arrays whose places depend on more than the rows.
TEST_F(ReplayCheckTest, OfStepsInPiecesNothingButTheRowsSequencesMustStay) {
  const ops::DeviceBatch batch{.row_sequences = array_.data()};
  ops::DeviceBatch other = batch;
  other.kv_lens = array_.data();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(step(x_.data(), batch, /*whole=*/false).ok());
  EXPECT_TRUE(step(x_.data(), other, /*whole=*/false).ok());
  other.row_sequences = array_.data() + 1;
  EXPECT_THAT(step(x_.data(), other, /*whole=*/false).message(),
              ::testing::HasSubstr("the batch's row_sequences took"));
}

}  // namespace
}  // namespace heddle::runner

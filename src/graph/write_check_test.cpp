// SPDX-License-Identifier: Apache-2.0
#include "graph/write_check.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "graph/graph_fixture.h"

namespace heddle::graph {
namespace {

using ::testing::HasSubstr;

// A copy but for the row `left_out`, from column 5 on.
Status launch_forgetful(ops::Context&, const ops::LaunchArgs& args) {
  const TensorView& x = args.inputs[0];
  const MutableTensorView& y = args.outputs[0];
  for (int64_t row = 0; row < y.shape[0]; ++row) {
    const int64_t count = row == args.attrs.integer("left_out") ? 5 : y.shape[1];
    std::copy_n(x.row<float>(row), count, y.row<float>(row));
  }
  return {};
}

// "forgetful" owes all rows, "careless" those that are not padding.
const ops::OpRegistry& checked_ops() {
  static const ops::OpDef kOps[] = {{.name = "forgetful",
                                     .num_inputs = 1,
                                     .infer = testing::infer_same_shape,
                                     .launch = launch_forgetful},
                                    {.name = "careless",
                                     .coverage = ops::WriteCoverage::kRealRows,
                                     .num_inputs = 1,
                                     .infer = testing::infer_same_shape,
                                     .launch = launch_forgetful}};
  static const ops::OpRegistry kRegistry = [] {
    ops::OpRegistry ops = testing::registry();
    ops.add(kOps);
    return ops;
  }();
  return kRegistry;
}

// Adds its inputs of the chain "forgetful", "add", whose link it does not write.
Result<bool> launch_sum(ops::Context& context, std::span<const ops::ChainedOp> chain) {
  HEDDLE_RETURN_IF_ERROR(ops::elementwise(context, {.kind = ops::ElementwiseKind::kAdd,
                                                    .a = chain[0].args.inputs[0],
                                                    .b = chain[1].args.inputs[1],
                                                    .y = chain[1].args.outputs[0]}));
  return true;
}

Result<bool> launch_nothing(ops::Context&, std::span<const ops::ChainedOp>) { return true; }

Result<bool> decline(ops::Context&, std::span<const ops::ChainedOp>) { return false; }

class WriteCheckTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 4;
  static constexpr int64_t kNone = -1;

  WriteCheckTest()
      : builder_(checked_ops(), [](std::string_view) { return nullptr; }),
        x_(builder_.input("x", testing::rows(8))) {}

  Value forgetful(Value x, int64_t left_out, const char* op = "forgetful") {
    return builder_.apply1(op, {x}, {{"left_out", static_cast<double>(left_out)}});
  }

  // Of the program that has been built, over rows of which the last `padding` are padding; keeps
  // the first output.
  Status run(Value output, int64_t padding = 0, std::span<const ops::OpChain> chains = {}) {
    builder_.output(output, "y");
    Graph graph = builder_.finish().value();
    Executor executor = Executor::create(compile(std::move(graph), checked_ops(), context_,
                                                 {.largest = {.tokens = kRows}, .chains = chains})
                                             .value(),
                                         cpu_)
                            .value();
    std::vector<float> ones(static_cast<size_t>(kRows * 8), 1.0F);
    const std::array<TensorView, 1> inputs = {
        TensorView(ones.data(), DType::kF32, Shape{kRows, 8})};
    const std::array<int32_t, 2> starts{0, kRows};
    std::array<int32_t, kRows> sequences{};
    std::fill(sequences.end() - padding, sequences.end(), -1);
    const ops::ForwardContext forward{.query_start = starts,
                                      .batch = {.row_sequences = sequences.data()}};
    HEDDLE_RETURN_IF_ERROR(executor.poison(*stream_));
    HEDDLE_RETURN_IF_ERROR(executor.set_extents({.tokens = kRows}));
    executor.set_inputs(inputs);
    HEDDLE_RETURN_IF_ERROR(launch_checked(executor, *stream_, context_, forward, executor.whole()));
    const TensorView y = executor.output(0);
    y_ = {y.as<float>(), y.as<float>() + y.num_elements()};
    return {};
  }

  device::CpuDevice cpu_{1};
  ops::CpuContext context_{cpu_.pool()};
  std::unique_ptr<device::Stream> stream_ = cpu_.create_stream().value();
  GraphBuilder builder_;
  Value x_;
  std::vector<float> y_;
};

TEST_F(WriteCheckTest, OpsThatWriteAllPass) {
  EXPECT_TRUE(run(forgetful(x_, kNone)).ok());
  EXPECT_THAT(y_, ::testing::Each(1.0F));
}

TEST_F(WriteCheckTest, NamesTheOpAndWhatItHasNotWritten) {
  const GraphScope scope(builder_, "layers.3.");
  const Status status = run(builder_.sigmoid(forgetful(builder_.sigmoid(x_), 2)));
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("layers.3.forgetful has not written column 5 of row 2"));
}

TEST_F(WriteCheckTest, RowsOfPaddingAreOwedByOpsThatDeclareAllRows) {
  EXPECT_THAT(run(forgetful(x_, 3), /*padding=*/1).message(), HasSubstr("forgetful"));
}

// The second op copies what the first one has left.
TEST_F(WriteCheckTest, OthersMayLeaveThemOut) {
  EXPECT_TRUE(run(forgetful(forgetful(x_, 3, "careless"), kNone), /*padding=*/1).ok());
}

TEST_F(WriteCheckTest, ButNotRealRows) {
  EXPECT_THAT(run(forgetful(x_, 2, "careless"), /*padding=*/1).message(),
              HasSubstr("careless has not written column 5 of row 2"));
}

// Both lie in one tensor, whose other columns stay as they are.
TEST_F(WriteCheckTest, ColumnRangesAreCheckedByThemselves) {
  const Value first = forgetful(x_, kNone);
  const Value second = forgetful(x_, 1);
  EXPECT_THAT(run(builder_.concat(first, second)).message(), HasSubstr("column 5 of row 1"));
}

TEST_F(WriteCheckTest, LeavesOutChangesInPlace) {
  EXPECT_TRUE(run(builder_.apply1("increment", {forgetful(x_, kNone)})).ok());
  EXPECT_THAT(y_, ::testing::Each(2.0F));
}

class ChainWriteCheckTest : public WriteCheckTest {
 protected:
  Status run_chain(Result<bool> (*launch)(ops::Context&, std::span<const ops::ChainedOp>)) {
    static constexpr std::string_view kNames[] = {"forgetful", "add"};
    static constexpr ops::OpChain::Link kLinks[] = {{.from = 0, .to = 1, .input = 0}};
    const std::array chains{ops::OpChain{.ops = kNames, .links = kLinks, .launch = launch}};
    return run(builder_.add(forgetful(x_, 0), x_), 0, chains);
  }
};

TEST_F(ChainWriteCheckTest, OwesNoLinkThatNobodyElseReads) {
  const Status status = run_chain(launch_sum);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(y_, ::testing::Each(2.0F));
}

// Later ops may have its memory and copy what lies there, as rows of padding.
TEST_F(ChainWriteCheckTest, LeavesNoMarksInSuchALink) {
  const Status status = run_chain([](ops::Context& context, std::span<const ops::ChainedOp> ops) {
    EXPECT_EQ(*ops[0].args.outputs[0].as<std::byte>(), kPoison);
    return launch_sum(context, ops);
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(ChainWriteCheckTest, OwesItsResult) {
  EXPECT_THAT(run_chain(launch_nothing).message(), HasSubstr("add has not written column 0"));
}

TEST_F(ChainWriteCheckTest, ItsOpsOweAllWhereItDeclines) {
  EXPECT_THAT(run_chain(decline).message(), HasSubstr("forgetful has not written column 5"));
}

}  // namespace
}  // namespace heddle::graph

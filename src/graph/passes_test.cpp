// SPDX-License-Identifier: Apache-2.0
// Dead code, fusion, copy elision, split and dump, each on graphs small enough to read.
#include "graph/passes.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/graph_fixture.h"
#include "graph/placement.h"
#include "graph/program.h"

namespace heddle::graph {
namespace {

using ::testing::ElementsAre;
using testing::op_names;
using testing::registry;
using testing::TestBuilder;

Graph finish(TestBuilder& g) { return std::move(g.finish()).value(); }

TEST(DeadCode, DropsUnreadNodesAndKeepsWritesOfStateAndCollectives) {
  TestBuilder g;
  const Value x = g.x();
  g.sigmoid(g.add(x, x));             // dead
  g.apply1("mixer", {g.sigmoid(x)});  // writes state: lives, and so does what it reads
  g.apply1("meet", {g.add(x, x)});    // other ranks wait for it: the same
  g.output(g.mul(x, x), "y");
  const Graph graph = remove_dead_code(finish(g));
  EXPECT_THAT(op_names(graph), ElementsAre("sigmoid", "mixer", "add", "meet", "mul"));
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Fuse, FoldsTheResidualAddIntoTheNormThatReadsIt) {
  TestBuilder g;
  const Value h0 = g.sigmoid(g.x());
  const Value h1 = g.add(h0, g.apply1("mixer", {g.rms_norm(h0, "norm", 1e-6)}));
  const Value y = g.apply1("mixer", {g.rms_norm(h1, "norm", 1e-6)});
  g.output(g.add(h1, y), "h2");
  const Result<Graph> fused = fuse(finish(g), registry());
  ASSERT_TRUE(fused.ok());
  EXPECT_THAT(op_names(*fused),
              ElementsAre("sigmoid", "rms_norm", "mixer", "add_rms_norm", "mixer", "add"));
  EXPECT_TRUE(verify(*fused).ok()) << verify(*fused).to_string();
}

TEST(Fuse, LeavesTheAddAloneWhenTheOldResidualIsStillRead) {
  TestBuilder g;
  const Value h0 = g.sigmoid(g.x());
  const Value h1 = g.add(h0, g.apply1("mixer", {h0}));
  g.output(g.rms_norm(h1, "norm", 1e-6), "y");
  g.output(h0, "kept");
  EXPECT_THAT(op_names(*fuse(finish(g), registry())),
              ElementsAre("sigmoid", "mixer", "add", "rms_norm"));
}

TEST(Fuse, LeavesTheAddAloneWhenTheResidualIsAnInputOrAColumnRange) {
  TestBuilder g;
  const Value x = g.x();
  g.output(g.rms_norm(g.add(x, g.sigmoid(x)), "norm", 1e-6), "y");
  EXPECT_THAT(op_names(*fuse(finish(g), registry())), ElementsAre("sigmoid", "add", "rms_norm"));

  TestBuilder wide;
  const Value both = wide.sigmoid(wide.input("wide", testing::rows(16)));
  const std::vector<Value> parts = wide.split(both, {8, 8});
  wide.output(wide.rms_norm(wide.add(parts[0], parts[1]), "norm", 1e-6), "y");
  EXPECT_THAT(op_names(*fuse(finish(wide), registry())),
              ElementsAre("sigmoid", "columns", "columns", "add", "rms_norm"));
}

TEST(Fuse, NeverMovesAnOpAcrossASplit) {
  TestBuilder g;
  const Value h = g.sigmoid(g.x());
  const Value sum = g.add(h, g.sigmoid(h));
  const Value mixed = g.apply1("mixer", {g.x("other")});
  g.output(g.rms_norm(sum, "norm", 1e-6), "y");
  g.output(mixed, "z");
  EXPECT_THAT(op_names(*fuse(finish(g), registry())),
              ElementsAre("sigmoid", "sigmoid", "add", "mixer", "rms_norm"));
}

TEST(Fuse, JoinsHeadNormWithRotationAndGateWithProduct) {
  TestBuilder g;
  const Value x = g.x();
  const Value positions =
      g.input("positions", {DType::kI32, {ops::SymbolicDim::of(ops::Symbol::kTokens)}});
  const Value q = g.rope(g.rms_norm(x, "norm", 1e-6), positions, g.weight("frequencies"), 8, 1.0);
  g.output(g.mul(q, g.sigmoid(x)), "y");
  const Result<Graph> fused = fuse(finish(g), registry());
  EXPECT_THAT(op_names(*fused), ElementsAre("qk_norm_rope", "sigmoid_mul"));
  EXPECT_TRUE(verify(*fused).ok());
  EXPECT_EQ(fused->nodes[1].inputs[1], fused->inputs[0]) << "the gate comes second";
}

TEST(Fuse, KeepsAGateThatIsReadTwice) {
  TestBuilder g;
  const Value x = g.x();
  const Value gate = g.sigmoid(x);
  g.output(g.mul(g.mul(x, gate), gate), "y");
  EXPECT_THAT(op_names(*fuse(finish(g), registry())), ElementsAre("sigmoid", "mul", "mul"));
}

TEST(CopyElision, MakesColumnRangesOffsetsIntoTheWholeRows) {
  TestBuilder g;
  const Value wide = g.sigmoid(g.input("wide", testing::rows(20)));
  const std::vector<Value> parts = g.split(wide, {4, 8, 8});
  const std::vector<Value> inner = g.split(parts[1], {2, 6});
  g.output(g.sigmoid(inner[1]), "y");
  const PlacedGraph placed = elide_copies(finish(g));
  EXPECT_THAT(op_names(placed.graph), ElementsAre("sigmoid", "sigmoid"));
  EXPECT_EQ(placed.placements[inner[1].id].storage, wide);
  EXPECT_EQ(placed.placements[inner[1].id].column, 6);
  EXPECT_EQ(placed.row_stride(inner[1]), 20);
}

TEST(CopyElision, CopiesAColumnRangeForAReaderThatNeedsDenseRowsOrForTheCaller) {
  TestBuilder g;
  const std::vector<Value> parts = g.split(g.sigmoid(g.input("wide", testing::rows(16))), {8, 8});
  g.output(g.apply1("copy_dense", {parts[0]}), "y");
  g.output(parts[1], "z");
  const PlacedGraph placed = elide_copies(finish(g));
  EXPECT_THAT(op_names(placed.graph), ElementsAre("sigmoid", "columns", "columns", "copy_dense"));
  EXPECT_EQ(placed.row_stride(parts[0]), 8);
}

TEST(CopyElision, LetsProducersWriteIntoTheConcatenation) {
  TestBuilder g;
  const Value a = g.sigmoid(g.x("a"));
  const Value b = g.sigmoid(g.x("b"));
  const Value both = g.concat(a, b);
  g.output(g.concat(both, g.sigmoid(g.x("c"))), "y");
  const PlacedGraph placed = elide_copies(finish(g));
  EXPECT_THAT(op_names(placed.graph), ElementsAre("sigmoid", "sigmoid", "sigmoid"));
  EXPECT_EQ(placed.placements[b.id].column, 8);
  EXPECT_EQ(placed.row_stride(b), 24);
}

TEST(CopyElision, PadsRowsOfStoragesToWholeVectorsUnlessAReaderNeedsDenseRows) {
  TestBuilder g;
  const Value odd = g.sigmoid(g.input("odd", testing::rows(1537)));
  const std::vector<Value> parts = g.split(odd, {1024, 513});
  const Value dense = g.sigmoid(g.input("dense", testing::rows(7)));
  g.output(g.sigmoid(parts[1]), "y");
  g.output(g.apply1("copy_dense", {dense}), "z");
  const PlacedGraph placed = elide_copies(finish(g));
  EXPECT_EQ(placed.row_stride(odd), 1540);
  EXPECT_EQ(placed.row_stride(parts[1]), 1540);
  EXPECT_EQ(placed.storage_bytes(odd, {.tokens = 3}), 3 * 1540 * 4);
  EXPECT_EQ(placed.row_stride(dense), 7);
}

TEST(CopyElision, KeepsAConcatenationOfInputsOrOfOneValueTwice) {
  TestBuilder g;
  const Value a = g.sigmoid(g.x("a"));
  g.output(g.concat(g.x("b"), a), "y");
  g.output(g.concat(a, a), "z");
  const PlacedGraph placed = elide_copies(finish(g));
  EXPECT_THAT(op_names(placed.graph), ElementsAre("sigmoid", "concat", "concat"));
}

// Sizes of segments, those that are split as negative numbers.
std::vector<int> segment_sizes(const Graph& graph, std::span<const Chain> chains = {}) {
  std::vector<int> sizes;
  size_t begin = 0;
  for (const Segment& segment : split_into_segments(graph, chains)) {
    EXPECT_EQ(segment.begin, begin);
    begin = segment.end;
    const auto size = static_cast<int>(segment.end - segment.begin);
    sizes.push_back(segment.split ? -size : size);
  }
  EXPECT_EQ(begin, graph.nodes.size());
  return sizes;
}

TEST(Split, CutsBeforeAndAfterOpsThatDependOnTheBatch) {
  TestBuilder g;
  const Value a = g.apply1("mixer", {g.sigmoid(g.x())});
  const Value b = g.apply1("mixer", {a});
  g.output(g.sigmoid(g.sigmoid(b)), "y");
  EXPECT_THAT(segment_sizes(finish(g)), ElementsAre(1, -2, 2));
}

TEST(Split, LeavesAChainWithSuchAnOpWhole) {
  static constexpr std::string_view kNames[] = {"mixer", "sigmoid"};
  static constexpr ops::OpChain kMixed[] = {{.ops = kNames}};
  TestBuilder g;
  const Value a = g.apply1("mixer", {g.sigmoid(g.x())});
  g.output(g.sigmoid(g.sigmoid(a)), "y");
  const Graph graph = finish(g);
  EXPECT_THAT(segment_sizes(graph, std::array{Chain{.begin = 1, .ops = kMixed}}),
              ElementsAre(1, -2, 1));
}

TEST(Split, EndsBeforeTheRowsWhoseLogitsAreWanted) {
  TestBuilder g;
  g.output(g.sigmoid(g.logit_rows(g.sigmoid(g.x()))), "y");
  EXPECT_THAT(segment_sizes(finish(g)), ElementsAre(1, -2));
}

std::string dump_of(TestBuilder& g) {
  device::ThreadPool pool(1);
  const ops::CpuContext context(pool);
  const Result<Program> program =
      compile(finish(g), registry(), context, {.largest = {.tokens = 4, .logits = 1}});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? dump(*program) : "";
}

TEST(Dump, PrintsShapesLiveRangesOffsetsAndSegmentsInAStableOrder) {
  TestBuilder g;
  const Value h = g.sigmoid(g.x());
  const GraphScope scope(g, "layers.0.");
  g.output(g.apply1("mixer", {h}), "y");
  EXPECT_EQ(dump_of(g),
            "program: 2 nodes, 2 segments, arena 512 bytes for T = 4, R = 1\n"
            "input  %0 x: float32[T, 8]\n"
            "output %2 y\n"
            "-- segment 0\n"
            "   0 %1: float32[T, 8] @0 live 0..1 = sigmoid(%0 x)\n"
            "-- segment 1 (split)\n"
            "   1 %2 y: float32[T, 8] @256 live 1..end = mixer(%1)\n");
}

TEST(Dump, ShowsWhatLiesInTheRowsOfAnotherValueByItsColumns) {
  TestBuilder g;
  const std::vector<Value> parts = g.split(g.sigmoid(g.input("wide", testing::rows(16))), {8, 8});
  const Value in_place = g.apply1("increment", {g.sigmoid(parts[1])});
  const Value left = g.sigmoid(in_place);
  const Value right = g.rms_norm(parts[0], "norm", 1e-6);
  g.output(g.sigmoid(g.concat(left, right)), "y");
  EXPECT_EQ(dump_of(g),
            "program: 6 nodes, 1 segments, arena 768 bytes for T = 4, R = 1\n"
            "input  %0 wide: float32[T, 16]\n"
            "output %10 y\n"
            "-- segment 0\n"
            "   0 %1: float32[T, 16] @0 live 0..4 = sigmoid(%0 wide)\n"
            "   1 %4: float32[T, 8] @256 live 1..3 = sigmoid(%1[8:16])\n"
            "   2 %5: float32[T, 8] in %4 @256 live 1..3 = increment(%4)\n"
            "   3 %6: float32[T, 8] in %9[0:8] @512 live 3..5 = sigmoid(%5)\n"
            "   4 %8: float32[T, 8] in %9[8:16] @512 live 3..5 = "
            "rms_norm(%1[0:8], %7 norm: float32[8]) epsilon=1e-06\n"
            "   5 %10 y: float32[T, 16] @0 live 5..end = sigmoid(%9: float32[T, 16])\n");
}

}  // namespace
}  // namespace heddle::graph

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/graph_fixture.h"
#include "graph/passes.h"

namespace heddle::graph {
namespace {

using ::testing::HasSubstr;
using testing::TestBuilder;

TEST(Builder, KeepsTheFirstErrorWithItsScope) {
  TestBuilder g;
  const Value x = g.x();
  {
    const GraphScope layer(g, "layers.3.");
    g.rms_norm(x, "no_such_norm", 1e-6);
    g.apply1("no_such_op", {x});
  }
  const Result<Graph> graph = g.finish();
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.status().message(),
            "layers.3.: the model asks for the weight layers.3.no_such_norm, which was not loaded");
}

TEST(Builder, RefusesPartsThatDoNotAddUpToTheWhole) {
  TestBuilder g;
  g.split(g.x(), {3, 4});
  EXPECT_THAT(g.finish().status().message(), HasSubstr("the parts are 7 columns wide together"));
}

// The rows that are plain are a weight like others; others keep how they are stored.
TEST(Builder, CutsRowsOfAQuantisedWeight) {
  alignas(64) std::byte codes[8 * 64];
  float scales[2] = {1, 2};
  Bf16 rows[4 * 64];
  quant::PackedWeight weight;
  weight.parts.push_back(
      {.num_rows = 8,
       .packed = {
           .format = {.code = quant::Code::kE4M3, .K = 64, .group_size = 128, .block_rows = 4},
           .num_rows = 8,
           .codes = codes,
           .scales = reinterpret_cast<std::byte*>(scales),
           .rows_per_scale = 4}});
  weight.parts.push_back(
      {.first_row = 8, .num_rows = 4, .plain = TensorView(rows, DType::kBf16, {4, 64})});
  TensorView view(nullptr, DType::kPacked, {12, 64});
  view.packed = &weight;
  GraphBuilder g(testing::registry(), [&](std::string_view) { return &view; });
  const Value both = g.weight_rows("w", 5, 5);
  const Value plain = g.weight_rows("w", 9, 2);
  const Value first = g.weight_rows("w", 0, 3);
  const Graph graph = std::move(g.finish()).value();
  const TensorView& two_parts = graph.info(both).constant;
  EXPECT_EQ(two_parts.dtype, DType::kPacked);
  EXPECT_EQ(two_parts.shape, (Shape{5, 64}));
  ASSERT_EQ(two_parts.packed->parts.size(), 2u);
  EXPECT_EQ(two_parts.packed->parts[0].num_rows, 3);
  EXPECT_EQ(two_parts.packed->parts[0].packed.row_codes(0),
            reinterpret_cast<const uint8_t*>(codes) + 5 * 64);
  EXPECT_EQ(two_parts.packed->parts[0].packed.row_scales(0),
            reinterpret_cast<const std::byte*>(&scales[1]));
  EXPECT_EQ(two_parts.packed->parts[1].first_row, 3);
  EXPECT_EQ(two_parts.packed->parts[1].plain.data, rows);
  EXPECT_EQ(graph.info(plain).constant.dtype, DType::kBf16);
  EXPECT_EQ(graph.info(plain).constant.data, rows + 64);
  EXPECT_EQ(graph.info(first).constant.packed->num_bytes(), 3 * 64 + 4);
  EXPECT_THAT(GraphBuilder(testing::registry(), [&](std::string_view) { return &view; })
                  .weight_rows("w", 9, 4),
              Value{});
}

TEST(Verify, EachNumberOfAVectorIsARow) {
  const std::vector<float> numbers = {0, 1, 2, 3, 4, 5};
  const TensorView view(numbers.data(), DType::kF32, {6});
  GraphBuilder g(testing::registry(), [&](std::string_view) { return &view; });
  const Value some = g.weight_rows("bias", 2, 3);
  const Graph graph = std::move(g.finish()).value();
  EXPECT_EQ(graph.info(some).constant.shape, (Shape{3}));
  EXPECT_EQ(graph.info(some).constant.data, numbers.data() + 2);
  EXPECT_EQ(GraphBuilder(testing::registry(), [&](std::string_view) { return &view; })
                .weight_rows("bias", 4, 3),
            Value{});
}

TEST(Verify, AcceptsWhatTheBuilderMakes) {
  TestBuilder g;
  const Value x = g.x();
  g.output(g.add(g.rms_norm(x, "norm", 1e-6), x), "y");
  const Graph graph = std::move(g.finish()).value();
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Verify, RefusesReadingAVersionThatWasOverwritten) {
  TestBuilder g;
  const Value h = g.add(g.x("a"), g.x("b"));
  const Value newer = g.apply1("increment", {h});
  g.output(g.add(newer, h), "y");
  const Graph graph = std::move(g.finish()).value();
  EXPECT_THAT(verify(graph).message(), HasSubstr("is read after it was overwritten in place"));
}

TEST(Verify, RefusesReadingAColumnRangeOfAnOverwrittenVersion) {
  TestBuilder g;
  const Value h = g.add(g.x("a"), g.x("b"));
  const std::vector<Value> parts = g.split(h, {4, 4});
  g.output(g.apply1("increment", {h}), "h");
  g.output(g.add(parts[0], parts[1]), "y");
  const Graph graph = std::move(g.finish()).value();
  EXPECT_THAT(verify(graph).message(), HasSubstr("is read after it was overwritten in place"));
}

TEST(Verify, RefusesUseBeforeDefinitionDoubleDefinitionAndWrongShapes) {
  TestBuilder g;
  const Value y = g.sigmoid(g.sigmoid(g.x()));
  g.output(y, "y");
  const Graph good = std::move(g.finish()).value();

  Graph swapped = good;
  std::swap(swapped.nodes[0], swapped.nodes[1]);
  EXPECT_THAT(verify(swapped).message(), HasSubstr("is read before it is defined"));

  Graph twice = good;
  twice.nodes.push_back(twice.nodes[0]);
  EXPECT_THAT(verify(twice).message(), HasSubstr("is defined twice"));

  Graph wrong = good;
  wrong.info(wrong.nodes[0].outputs[0]).meta = testing::rows(9);
  EXPECT_THAT(verify(wrong).message(), HasSubstr("the op gives float32[T, 8]"));

  Graph unbound = good;
  unbound.outputs.push_back(unbound.add_value({.meta = testing::rows(8)}));
  EXPECT_THAT(verify(unbound).message(), HasSubstr("graph output"));
}

TEST(Verify, RefusesOverwritingAWeight) {
  TestBuilder g;
  g.output(g.apply1("increment", {g.weight("norm")}), "y");
  const Result<Graph> graph = g.finish();
  ASSERT_TRUE(graph.ok());
  EXPECT_THAT(verify(*graph).message(), HasSubstr("would overwrite the weight"));
}

}  // namespace
}  // namespace heddle::graph

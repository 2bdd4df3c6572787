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

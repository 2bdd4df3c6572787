// SPDX-License-Identifier: Apache-2.0
#include "chat/render_state.h"

#include <optional>
#include <utility>

#include <gtest/gtest.h>

namespace heddle::chat {
namespace {

Value dict_of(std::string name, Value value) {
  return make_dict(nullptr, {{Value::string(std::move(name)), std::move(value)}}).value();
}

TEST(ScopesTest, ANameMeansTheInnermostVariableThenTheContextThenABuiltin) {
  const Value context = dict_of("x", Value::integer(1));
  Budget budget({});
  Scopes scopes(context, budget);
  EXPECT_EQ(scopes.look_up("x").as_integer(), 1);
  EXPECT_TRUE(scopes.look_up("range").is(Kind::kBuiltin));
  scopes.set("x", Value::integer(2));
  scopes.set("range", Value::integer(3));
  {
    const Scopes::Inner inner(scopes);
    EXPECT_EQ(scopes.look_up("x").as_integer(), 2);
    scopes.set("x", Value::integer(4));
    EXPECT_EQ(scopes.look_up("x").as_integer(), 4);
    EXPECT_EQ(scopes.look_up("range").as_integer(), 3);
  }
  EXPECT_EQ(scopes.look_up("x").as_integer(), 2);
  EXPECT_EQ(scopes.look_up("y").undefined_reason(), "'y' is undefined");
}

TEST(ScopesTest, AScopeThatEndedLeavesNothingToTheNext) {
  const Value context = dict_of("x", Value::integer(1));
  Budget budget({});
  Scopes scopes(context, budget);
  for (int round = 0; round < 3; ++round) {
    const Scopes::Inner inner(scopes);
    EXPECT_TRUE(scopes.variables().empty());
    scopes.set("inside", Value::integer(round));
  }
  EXPECT_TRUE(scopes.look_up("inside").is_undefined());
}

TEST(ScopesTest, AMacroKeepsTheScopesAroundIt) {
  const Value context = dict_of("x", Value::integer(1));
  Budget budget({});
  Scopes scopes(context, budget);
  MacroDefinition definition;
  definition.name = "m";
  const Macro* macro = nullptr;
  {
    const Scopes::Inner inner(scopes);
    scopes.set("kept", Value::integer(7));
    macro = scopes.make_macro(definition).value();
  }
  EXPECT_TRUE(scopes.look_up("kept").is_undefined());
  {
    const Scopes::Inner other(scopes);
    scopes.set("other", Value::integer(8));
    const Scopes::Inner body(scopes, macro->scope);
    EXPECT_EQ(scopes.look_up("kept").as_integer(), 7);
    EXPECT_TRUE(scopes.look_up("other").is_undefined()) << "the caller's, not the definition's";
  }
  EXPECT_EQ(macro_name(*macro), "m");
}

TEST(ScopesTest, TheScopesOfAMacroCountAgainstTheBudget) {
  const Value context = dict_of("x", Value::integer(1));
  Budget budget({.max_memory_bytes = 4000});
  Scopes scopes(context, budget);
  for (int i = 0; i < 30; ++i) scopes.set("v" + std::to_string(i), Value::integer(i));
  const MacroDefinition definition;
  const auto macro = scopes.make_macro(definition);
  ASSERT_FALSE(macro.ok());
  EXPECT_NE(macro.status().message().find("max_memory_bytes"), std::string::npos);
}

TEST(RenderTraceTest, AnErrorGetsThePositionOfTheInnermostNodeOnly) {
  Budget budget({});
  RenderTrace trace("t", budget);
  EXPECT_TRUE(trace.locate({.line = 9, .column = 9}, Status()).ok());
  const Status inner = trace.locate({.line = 2, .column = 3}, invalid_argument("no"));
  EXPECT_EQ(inner.message(), "t:2:3: no");
  EXPECT_EQ(trace.locate({.line = 1, .column = 1}, inner).message(), "t:2:3: no");
}

TEST(RenderTraceTest, AKeptMessageGetsNoPosition) {
  Budget budget({});
  RenderTrace trace("t", budget);
  trace.keep_message();
  EXPECT_EQ(trace.locate({.line = 2, .column = 3}, invalid_argument("no")).message(), "no");
}

TEST(RenderTraceTest, BoundsOpenLevelsAndCountsSteps) {
  Budget budget({.max_steps = 5, .max_recursion_depth = 2});
  RenderTrace trace("t", budget);
  const RenderTrace::Level first(trace);
  for (int i = 0; i < 3; ++i) {  // levels that ended do not add up
    const RenderTrace::Level second(trace);
    EXPECT_TRUE(trace.count_step({}).ok());
  }
  EXPECT_EQ(budget.steps(), 3);
  std::optional<RenderTrace> other(std::in_place, "t", budget);
  EXPECT_TRUE(other->count_step({}).ok());
  const RenderTrace::Level second(trace);
  const RenderTrace::Level third(trace);
  EXPECT_EQ(trace.count_step({.line = 4, .column = 5}).message(),
            "t:4:5: more than 2 nested evaluations (max_recursion_depth)");
  EXPECT_TRUE(other->count_step({}).ok());
  EXPECT_EQ(other->count_step({.line = 6, .column = 7}).message(),
            "t:6:7: the template takes more than 5 steps (max_steps)");
}

}  // namespace
}  // namespace heddle::chat

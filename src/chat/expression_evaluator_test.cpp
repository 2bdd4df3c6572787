// SPDX-License-Identifier: Apache-2.0
// Expressions and built-in functions without statements around them. Macros are a fake.
#include "chat/expression_evaluator.h"

#include <string>

#include <gtest/gtest.h>

#include "chat/golden_fixture.h"
#include "chat/parser.h"
#include "chat/python_text.h"

namespace heddle::chat {
namespace {

// Answers with its name and the arguments it was called with, or fails.
class FakeMacros final : public MacroCaller {
 public:
  Result<Value> call_macro(const Macro& macro, const Arguments& arguments) override {
    if (fails) return invalid_argument("the macro failed");
    std::string text(macro_name(macro));
    for (const Value& value : arguments.positional)
      text += " " + std::to_string(value.as_integer());
    for (const auto& [name, value] : arguments.named) {
      text += " " + name + "=" + std::to_string(value.as_integer());
    }
    return Value::string(std::move(text));
  }

  bool fails = false;
};

class ExpressionEvaluatorTest : public ::testing::Test {
 protected:
  ExpressionEvaluatorTest() {
    macro_.name = "m";
    scopes_.set("m", Value::from(scopes_.make_macro(macro_).value()));
    scopes_.set("n", Value::integer(7));
  }

  // repr(), or "error: " and the message.
  std::string evaluate(const std::string& expression) {
    const std::string source = "{{ " + expression + " }}";
    const Result<Block> block = parse_template(source, "t", {}, {});
    EXPECT_TRUE(block.ok()) << block.status().to_string();
    RenderTrace trace("t", budget_);
    BuiltinFunctions functions(scopes_, trace, budget_, local_now_);
    ExpressionEvaluator evaluator(scopes_, trace, budget_, functions, macros_);
    const auto value = evaluator.evaluate(*std::get<Output>(block->front().node).value);
    raised_exception_ = functions.raised_exception();
    if (!value.ok()) return "error: " + value.status().message();
    TextWriter out(&budget_);
    EXPECT_TRUE(write_repr(out, *value).ok());
    return out.take();
  }

  const Value context_ = make_dict(nullptr, {}).value();
  const std::function<std::tm()> local_now_ = golden_time;
  Budget budget_{RenderLimits()};
  Scopes scopes_{context_, budget_};
  MacroDefinition macro_;
  FakeMacros macros_;
  bool raised_exception_ = false;
};

TEST_F(ExpressionEvaluatorTest, SkipsOperandsThatDoNotMatter) {
  EXPECT_EQ(evaluate("0 and 1 / 0"), "0");
  EXPECT_EQ(evaluate("n or 1 / 0"), "7");
  EXPECT_EQ(evaluate("'a' if n else 1 / 0"), "'a'");
  EXPECT_EQ(evaluate("1 > 2 > 1 / 0"), "False");
  EXPECT_EQ(evaluate("n and 1 / 0"), "error: t:1:12: division by zero");
}

TEST_F(ExpressionEvaluatorTest, GivesAMacroItsArgumentsInOrder) {
  EXPECT_EQ(evaluate("m(1, *[2, 3], a=4, **{'b': 5})"), "'m 1 2 3 a=4 b=5'");
  EXPECT_EQ(evaluate("m(*2)"), "error: t:1:5: 'int' object is not iterable");
  EXPECT_EQ(evaluate("m(**[1])"),
            "error: t:1:5: the argument behind ** must be a dict, not 'list'");
  EXPECT_EQ(evaluate("m(**{1: 2})"),
            "error: t:1:5: the keys of the dict behind ** must be strings");
  EXPECT_EQ(evaluate("m(a=1, **{'a': 2})"), "error: t:1:5: got multiple values for argument 'a'");
}

TEST_F(ExpressionEvaluatorTest, AFailedCallIsPlacedAtTheCall) {
  macros_.fails = true;
  EXPECT_EQ(evaluate("[1, m()]"), "error: t:1:9: the macro failed");
  EXPECT_EQ(evaluate("n()"), "error: t:1:5: 'int' object is not callable");
  EXPECT_EQ(evaluate("nothing()"), "error: t:1:11: 'nothing' is undefined");
}

TEST_F(ExpressionEvaluatorTest, RangeCountsAsPythonDoes) {
  EXPECT_EQ(evaluate("range(3)|list"), "[0, 1, 2]");
  EXPECT_EQ(evaluate("range(5, 0, -2)|list"), "[5, 3, 1]");
  EXPECT_EQ(evaluate("range(2, 2)|list"), "[]");
  EXPECT_EQ(evaluate("range(1, 2, 0)"), "error: t:1:9: range(): the step must not be zero");
  EXPECT_EQ(evaluate("range(n=1)"), "error: t:1:9: range() takes no keyword arguments");
}

TEST_F(ExpressionEvaluatorTest, DictAndNamespaceTakePairsAndNames) {
  EXPECT_EQ(evaluate("dict([('a', 1)], b=2)"), "{'a': 1, 'b': 2}");
  EXPECT_EQ(evaluate("dict([1])"), "error: t:1:8: 'int' object is not iterable");
  EXPECT_EQ(evaluate("namespace(a=n).a"), "7");
  EXPECT_EQ(evaluate("namespace({1: 2})"), "error: t:1:13: namespace(): the keys must be strings");
}

TEST_F(ExpressionEvaluatorTest, RaiseExceptionKeepsItsText) {
  EXPECT_EQ(evaluate("1 + raise_exception('no ' ~ n)"), "error: no 7");
  EXPECT_TRUE(raised_exception_);
  EXPECT_EQ(evaluate("1 / 0"), "error: t:1:6: division by zero");
  EXPECT_FALSE(raised_exception_);
}

TEST_F(ExpressionEvaluatorTest, StrftimeNowShowsTheGivenTime) {
  EXPECT_EQ(evaluate("strftime_now('%d %b %Y')"), "'10 Jul 2025'");
}

}  // namespace
}  // namespace heddle::chat

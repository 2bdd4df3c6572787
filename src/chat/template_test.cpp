// SPDX-License-Identifier: Apache-2.0
#include "chat/template.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "chat/golden_fixture.h"
#include "chat/json.h"

namespace heddle::chat {
namespace {

std::string render(const std::string& source, const Json& context = Json::object()) {
  return shown(render_golden(source, context));
}

TEST(TemplateTest, WritesTextAndValues) {
  EXPECT_EQ(render("Hello {{ name }}!", {{"name", "Ada"}}), "Hello Ada!");
  EXPECT_EQ(render("{{ 1, 'a', none, true, 2.0, [1.5], {'k': x} }}"),
            "(1, 'a', None, True, 2.0, [1.5], {'k': Undefined})");
}

TEST(TemplateTest, UndefinedPrintsNothingButCannotBeLookedInto) {
  EXPECT_EQ(render("[{{ x }}{{ x is defined }}{{ 'a' if x }}]"), "[False]");
  EXPECT_EQ(render("{{ x.y }}"), "error: chat_template:1:6: 'x' is undefined");
  EXPECT_EQ(render("{{ d.x }}", {{"d", Json::object()}}), "");
  EXPECT_EQ(render("{{ d.x.y }}", {{"d", Json::object()}}),
            "error: chat_template:1:8: 'dict object' has no attribute 'x'");
}

TEST(TemplateTest, ASetInsideALoopEndsWithTheIteration) {
  EXPECT_EQ(
      render(
          "{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}"),
      "01020");
  EXPECT_EQ(render("{% set ns = namespace(x=0) %}{% for i in [1, 2] %}{% set ns.x = i %}{% endfor "
                   "%}{{ ns.x }}"),
            "2");
}

TEST(TemplateTest, LoopsKnowTheirIndex) {
  EXPECT_EQ(
      render("{% for c in 'abc' %}{{ loop.index }}{{ c }}{{ loop.previtem }}{{ loop.nextitem }}"
             "{% if not loop.last %},{% endif %}{% endfor %}"),
      "1ab,2bac,3cb");
  EXPECT_EQ(render("{% for k, v in {'a': 1, 'b': 2}.items() if v > 1 %}{{ k }}{{ loop.length }}{% "
                   "endfor %}"),
            "b1");
  EXPECT_EQ(render("{% for x in [] %}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 "
                   "%}{% break %}"
                   "{% endif %}{{ x }}{% endfor %}"),
            "02");
}

TEST(TemplateTest, MacrosTakeDefaultsAndCallers) {
  EXPECT_EQ(
      render("{% macro m(a, b='!') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}"),
      "<1!><32>");
  EXPECT_EQ(render("{% macro m() %}[{{ caller('x') }}]{% endmacro %}{% call(y) m() %}{{ y }}{{ y "
                   "}}{% endcall %}"),
            "[xx]");
  EXPECT_EQ(render("{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}"),
            "(1, 2){'k': 3}");
  EXPECT_EQ(render("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
            "error: chat_template:1:35: macro 'm' takes not more than 1 argument(s), 2 given");
  EXPECT_EQ(
      render(
          "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}"),
      "3210");
}

TEST(TemplateTest, AMacroMadeInALoopOutlivesIt) {
  EXPECT_EQ(
      render(
          "{% set ns = namespace() %}{% for i in [1, 2] %}{% set v = i * 10 %}"
          "{% macro m() %}{{ i }}:{{ v }}{% endmacro %}{% if i == 1 %}{% set ns.m = m %}{% endif %}"
          "{% endfor %}{{ ns.m() }}"),
      "1:10");
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in [1] %}{% set ns.l = loop %}{% endfor %}"
                   "{{ ns.l.index }}{{ ns.l.nextitem }}"),
            "1");
}

TEST(TemplateTest, ANamespaceMayContainItself) {
  EXPECT_EQ(render("{% set ns = namespace(x=1) %}{% set ns.me = [ns] %}{{ ns.me[0].me[0].x }}"),
            "1");
}

TEST(TemplateTest, GenerationBlocksAreTransparent) {
  EXPECT_EQ(render("a{% generation %}b{{ 1 }}{% endgeneration %}c"), "ab1c");
}

TEST(TemplateTest, TemplatesCannotChangeTheirData) {
  EXPECT_EQ(render("{{ x.append(1) }}", {{"x", {1}}}),
            "error: chat_template:1:12: 'list object' cannot be changed by a template: 'append' is "
            "not available");
  EXPECT_EQ(render("{{ x.pop('a') }}", {{"x", {{"a", 1}}}}),
            "error: chat_template:1:9: 'dict object' cannot be changed by a template: 'pop' is not "
            "available");
}

TEST(TemplateTest, NoAttributeLeadsOutOfTheData) {
  for (const char* name : {"__class__", "__init__", "__globals__", "mro", "_x", "func_code"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(render(std::string("{{ ''.") + name + " is defined }}"), "False");
    EXPECT_EQ(render(std::string("{{ raise_exception.") + name + " is defined }}"), "False");
    EXPECT_EQ(render(std::string("{{ ''['") + name + "'] is defined }}"), "False");
  }
}

TEST(TemplateTest, RaiseExceptionGivesExactlyItsText) {
  RenderReport report;
  const Result<std::string> text =
      render_golden("{% if true %}\n{{ raise_exception('Roles must alternate: ' ~ 1) }}{% endif %}",
                    Json::object(), {}, &report);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(text.status().message(), "Roles must alternate: 1");
  EXPECT_TRUE(report.raised_exception);
}

TEST(TemplateTest, ErrorsNameLineAndColumn) {
  EXPECT_EQ(render("a\nb {{ 1 + 'x' }}"),
            "error: chat_template:2:8: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(render("é {{ 'ü' + 1 }}"),
            "error: chat_template:1:10: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(render("{% macro m() %}\n  {{ 1 / 0 }}{% endmacro %}\n{{ m() }}"),
            "error: chat_template:2:8: division by zero");
}

TEST(TemplateTest, MalformedTemplatesAreRefusedWithTheirPosition) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{% if x %}a", "1:4: the block 'if' is not closed with 'endif'"},
      {"\n{% for x in y %}a{% endif %}",
       "2:21: unexpected 'endif': there is no open block it belongs to"},
      {"{{ x", "1:1: the output {{ is not closed with }}"},
      {"{% set x = 1", "1:1: the block {% is not closed with %}"},
      {"{# x", "1:1: the comment {# is not closed with #}"},
      {"{% raw %} x", "1:1: the block {% raw %} is not closed with {% endraw %}"},
      {"{{ 'x }}", "1:4: the string is not closed"},
      {"{{ }}", "1:4: expected an expression, found end of output '}}'"},
      {"{{ a b }}", "1:6: expected '}}', found 'b'"},
      {"{{ (1 }}", "1:7: unexpected '}', expected ')'"},
      {"{{ 1 ! 2 }}", "1:6: unexpected character '!'"},
      {"{% frob %}", "1:4: unknown tag 'frob'"},
      {"{% include 'x' %}", "1:4: the tag 'include' is not supported in chat templates"},
      {"{% break %}", "1:4: 'break' stands outside of a loop"},
      {"{% set true = 1 %}", "1:8: cannot assign to 'true'"},
      {"{{ 99999999999999999999 }}", "1:4: '99999999999999999999' is not an integer of 64 bits"},
      {"{{ '\\ud800' }}", "1:4: the escape for U+D800 is not a character"},
      {"{{ f(a=1, 2) }}", "1:11: a positional argument stands behind a named one, * or **"},
      {"{% for x in y recursive %}{% endfor %}",
       "1:15: recursive loops are not supported; use a macro"},
      {"{% macro m(a=1, b) %}{% endmacro %}",
       "1:17: a parameter without a default stands behind one with a default"},
      {"{{ x is string is number }}", "1:16: tests cannot be chained with 'is'"},
  };
  for (const auto& [source, message] : cases) {
    EXPECT_EQ(render(source), "error: chat_template:" + message) << source;
  }
  EXPECT_EQ(render("\xFF"), "error: chat_template: the template is not UTF-8 text");
}

TEST(TemplateTest, UnknownFiltersAndTestsFailOnlyWhenReached) {
  EXPECT_EQ(render("{{ 1|frob }}"), "error: chat_template:1:6: there is no filter named 'frob'");
  EXPECT_EQ(render("{{ 1 is frob }}"), "error: chat_template:1:6: there is no test named 'frob'");
  EXPECT_EQ(render("{% if false %}{{ 1|frob }}{{ 1 is frob }}{% endif %}x"), "x");
}

TEST(TemplateTest, StrftimeNowShowsTheGivenTime) {
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}"), "10 Jul 2025");
}

TEST(TemplateTest, RendersInManyThreadsAtOnce) {
  const Template parsed =
      Template::parse("{% for m in messages %}{{ m.content|upper }}{% endfor %}").value();
  const Value context =
      value_from_json({{"messages", {{{"content", "a"}}, {{"content", "b"}}}}}).value();
  std::vector<std::thread> threads;
  std::vector<int> num_right(4);
  for (size_t i = 0; i < num_right.size(); ++i) {
    threads.emplace_back([&parsed, &context, &count = num_right[i]] {
      for (int round = 0; round < 200; ++round)
        count += parsed.render(context).value() == "AB" ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_right, std::vector<int>(4, 200));
}

}  // namespace
}  // namespace heddle::chat

// SPDX-License-Identifier: Apache-2.0
// Bombs: small templates that ask for enormous work, text or nesting end in an error that names the
// limit.
#include "chat/limits.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "chat/golden_fixture.h"
#include "core/compiler.h"

namespace heddle::chat {
namespace {

std::string repeat(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

// The limits of these tests: the defaults, but fewer steps under a sanitizer, where they would take
// minutes.
constexpr RenderLimits kUsualLimits = {.max_steps =
                                           RenderLimits().max_steps / (HEDDLE_SANITIZED ? 32 : 1)};

void expect_limit(const std::string& source, std::string_view limit,
                  const Json& context = Json::object(), const RenderLimits& limits = kUsualLimits) {
  ParseOptions options;
  options.limits = limits;
  RenderReport report;
  const Result<std::string> text = render_golden(source, context, options, &report);
  const std::string start = source.substr(0, 100);
  ASSERT_FALSE(text.ok()) << start;
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument) << start;
  EXPECT_NE(text.status().message().find(limit), std::string::npos) << start << "\n"
                                                                    << text.status().message();
  EXPECT_FALSE(report.raised_exception);
}

TEST(LimitsTest, RepeatedTextsEndInAnError) {
  expect_limit("{{ 'x' * 10**9 }}", "max_memory_bytes");
  expect_limit("{{ 'x' * 9223372036854775807 }}", "max_memory_bytes");
  expect_limit("{{ ('ab' * 4611686018427387904) }}", "max_memory_bytes");
  expect_limit("{{ [0] * 10**9 }}", "max_memory_bytes");
  expect_limit("{{ ([0, 1] * 9223372036854775807)|length }}", "max_memory_bytes");
  expect_limit("{{ 'x'.ljust(10**12) }}", "max_memory_bytes");
  expect_limit("{{ 'x'.zfill(10**12) }}", "max_memory_bytes");
  expect_limit("{{ 'x'|center(10**12) }}", "max_memory_bytes");
  expect_limit("{{ 'a\nb'|indent(10**12) }}", "max_memory_bytes");
  expect_limit("{{ [1]|tojson(indent=10**12) }}", "max_memory_bytes");
  expect_limit("{{ '%1000000000000d' % 1 }}", "max_memory_bytes");
  expect_limit("{{ '%.999999999f' % 1 }}", "precision");
}

TEST(LimitsTest, GrowingTextsEndInAnError) {
  const RenderLimits limits{.max_memory_bytes = (HEDDLE_SANITIZED ? 1 : 4) << 20};
  const std::string doubling =
      "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(99) %}{% set ns.x = ";
  expect_limit(doubling + "ns.x + ns.x %}{% endfor %}", "max_memory_bytes", Json::object(),
               RenderLimits());
  expect_limit(doubling + "ns.x ~ ns.x %}{% endfor %}", "max_memory_bytes", Json::object(), limits);
  expect_limit(doubling + "ns.x.replace('x', 'xx') %}{% endfor %}", "max_", Json::object(), limits);
  expect_limit(doubling + "[ns.x, ns.x]|join %}{% endfor %}", "max_memory_bytes", Json::object(),
               limits);
  expect_limit(doubling + "[ns.x, ns.x]|string %}{% endfor %}", "max_memory_bytes", Json::object(),
               limits);
  expect_limit(doubling + "[ns.x, ns.x]|tojson %}{% endfor %}", "max_", Json::object(), limits);
  expect_limit(doubling + "'{0}{0}'.format(ns.x) %}{% endfor %}", "max_memory_bytes",
               Json::object(), limits);
  expect_limit(doubling + "'%s%s' % (ns.x, ns.x) %}{% endfor %}", "max_memory_bytes",
               Json::object(), limits);
}

TEST(LimitsTest, NestedLoopsEndInAnError) {
  const std::string open = "{% for a in range(100000) %}";
  expect_limit(repeat(open, 4) + "x" + repeat("{% endfor %}", 4), "max_steps");
  expect_limit(repeat(open, 3) + repeat("{% endfor %}", 3), "max_steps", Json::object(),
               {.max_steps = 300'000});
  expect_limit("{{ range(100001) }}", "at most 100000");
  expect_limit("{{ range(-9223372036854775807, 9223372036854775807) }}", "at most 100000");
}

TEST(LimitsTest, SharedListsThatLookEnormousEndInAnError) {
  const std::string nested =
      "{% set ns = namespace(x=[1, 2]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}";
  expect_limit(nested + "{{ ns.x }}", "max_");
  expect_limit(nested + "{{ ns.x|tojson }}", "max_");
  expect_limit(
      nested +
          "{% set ns.y = [1, 2] %}{% for i in range(60) %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
          "{{ ns.x == ns.y }}",
      "max_steps");
}

TEST(LimitsTest, DeepValuesEndInAnError) {
  expect_limit(
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}",
      "levels deep");
  expect_limit(
      "{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% "
      "endfor %}",
      "levels deep");
  expect_limit("{{ x|from_json }}", "levels deep",
               {{"x", repeat("[", 100'000) + repeat("]", 100'000)}});
}

TEST(LimitsTest, DeepContextsAreRefused) {
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  expect_limit("{{ x }}", "levels deep", {{"x", std::move(deep)}});
}

TEST(LimitsTest, EndlessRecursionEndsInAnError) {
  expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "max_recursion_depth");
  expect_limit(
      "{% macro f(x) %}{% for i in [1] %}{% if true %}{{ [f(x ~ x)]|join }}{% endif %}{% endfor %}"
      "{% endmacro %}{{ f('') }}",
      "max_recursion_depth");
  expect_limit("{% macro f() %}{{ caller }}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}",
               "max_recursion_depth");
}

TEST(LimitsTest, DeeplyNestedSourcesAreRefused) {
  constexpr size_t kMany = HEDDLE_SANITIZED ? 5'000 : 100'000;
  for (const auto& [open, close] :
       {std::pair{"(", ")"}, {"[", "]"}, {"{1:", "}"}, {"f(", ")"}, {"x[", "]"}}) {
    expect_limit("{{ " + repeat(open, kMany) + "1" + repeat(close, kMany) + " }}",
                 "max_nesting_depth");
    expect_limit("{{ " + repeat(open, kMany), "1:1: the output {{ is not closed");
  }
  constexpr size_t kFewer = kMany / 2;  // so that the source stays within its own bound
  for (const char* prefix :
       {"not ", "- ", "+ ", "1 if 1 else ", "1 + ", "1 ** ", "1 and ", "1 or "}) {
    expect_limit("{{ " + repeat(prefix, kFewer) + "1 }}", "max_nesting_depth");
  }
  for (const char* suffix : {".a", "[0]", "()", "|abs", " is defined"}) {
    expect_limit("{{ x" + repeat(suffix, kFewer) + " }}",
                 suffix[1] == 'i' ? "chained" : "max_nesting_depth");
  }
  expect_limit(repeat("{% if 1 %}", kFewer), "max_nesting_depth");
  expect_limit("{% set " + repeat("(", kMany) + "a" + repeat(")", kMany) + " = 1 %}", "too deep");
  expect_limit(std::string(2'000'000, 'x'), "max_source_bytes");
}

TEST(LimitsTest, SlowSearchesEndInAnError) {
  const Json context = {{"text", std::string(2'000'000, 'a')},
                        {"wanted", std::string(1'000'000, 'a') + "b"}};
  // Forward searches are linear; those from the right pay for the worst case before they start.
  EXPECT_EQ(
      shown(render_golden(
          "{{ text.find(wanted) }}{{ wanted in text }}{{ text.split(wanted)|length }}", context)),
      "-1False1");
  expect_limit("{{ text.rfind(wanted) }}", "max_steps", context);
  expect_limit("{{ text.rsplit(wanted) }}", "max_steps", context);
  expect_limit("{{ text.strip(text) }}", "max_steps", context);
  expect_limit("{% for i in range(100000) %}{% set x = text.upper() %}{% endfor %}", "max_steps",
               context, {.max_steps = 1'000'000});
}

TEST(LimitsTest, OutputIsBounded) {
  RenderLimits limits;
  limits.max_output_bytes = 100;
  expect_limit("{% for i in range(101) %}x{% endfor %}", "max_output_bytes", Json::object(),
               limits);
  EXPECT_EQ(shown(render_golden("{% for i in range(100) %}x{% endfor %}", Json::object(),
                                {.trim_blocks = true, .lstrip_blocks = true, .limits = limits})),
            std::string(100, 'x'));
}

TEST(LimitsTest, IntegersDoNotWrapAround) {
  for (const char* source :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "4611686018427387904 * 2",
        "10 ** 40", "(-9223372036854775807 - 1) // -1", "-(-9223372036854775807 - 1)",
        "(-9223372036854775807 - 1)|abs", "1e30|int", "[9223372036854775807, 1]|sum"}) {
    const Result<std::string> text =
        render_golden(fmt::format("{{{{ {} }}}}", source), Json::object());
    EXPECT_FALSE(text.ok()) << source;
    EXPECT_NE(text.status().message().find("64"), std::string::npos) << text.status().message();
  }
  EXPECT_EQ(shown(render_golden("{{ (-9223372036854775807 - 1) % -1 }}", Json::object())), "0");
  EXPECT_EQ(shown(render_golden(
                "{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] }}",
                Json::object())),
            "a");
}

TEST(LimitsTest, MemoryIsGivenBackAsValuesGo) {
  // 50 texts one after the other fit a budget for a few of them.
  constexpr size_t kLetters = HEDDLE_SANITIZED ? 100'000 : 1'000'000;
  RenderLimits limits;
  limits.max_memory_bytes = 8 * kLetters;
  EXPECT_EQ(
      shown(render_golden("{% for i in range(50) %}{% set x = text.upper() %}{% endfor %}done",
                          {{"text", std::string(kLetters, 'a')}},
                          {.trim_blocks = true, .lstrip_blocks = true, .limits = limits})),
      "done");
}

}  // namespace
}  // namespace heddle::chat

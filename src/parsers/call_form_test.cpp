// SPDX-License-Identifier: Apache-2.0
#include "parsers/call_form.h"

#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parsers/answer_delta.h"
#include "parsers/answer_parser.h"

namespace heddle::parsers {
namespace {

bool is_read_back(const std::string& name, ToolCallFormat format) {
  const std::string call =
      format == ToolCallFormat::kPythonic
          ? fmt::format("[{}()]", name)
          : fmt::format("<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{{}}",
                        name);
  const auto tools = std::make_shared<nlohmann::ordered_json>(
      nlohmann::ordered_json{{{"function", {{"name", name}}}}});
  const auto parser = make_answer_parser({.tool_calls = format, .tools = tools, .id_seed = "x"});
  AnswerDeltas deltas;
  parser->push(call, deltas);
  parser->finish(TextEnd::kStopped, deltas);
  AssembledAnswer answer;
  for (AnswerDelta& delta : deltas) answer.add(std::move(delta));
  return answer.calls.size() == 1 && answer.calls[0].name == name &&
         answer.calls[0].arguments == "{}" && answer.content.empty();
}

TEST(CallFormTest, AToolCanBeNamedWhoseNameTheParserReadsBack) {
  for (const ToolCallFormat format : {ToolCallFormat::kPythonic, ToolCallFormat::kHarmony}) {
    SCOPED_TRACE(to_string(format));
    for (const std::string& name :
         {std::string("f"), std::string("get_weather"), std::string("a.b-c"), std::string("9"),
          std::string("functions.f"), std::string("assistant"), std::string("get weather"),
          std::string("a<b"), std::string("a/b"), std::string("é"), std::string("x("),
          std::string(), std::string("a\nb"), std::string(300, 'a'), std::string(1100, 'a')}) {
      EXPECT_EQ(can_name(name, format), is_read_back(name, format)) << name;
    }
    EXPECT_TRUE(can_name("get_weather", format));
    EXPECT_FALSE(can_name("get weather", format));
  }
  EXPECT_TRUE(can_name("get weather", ToolCallFormat::kQwen)) << "in quotes";
}

}  // namespace
}  // namespace heddle::parsers

// SPDX-License-Identifier: Apache-2.0
// That a scripted model plays its texts through every API, streamed and whole.
#include "server/scripted_fixture.h"

#include <fmt/format.h>

namespace heddle::server {
namespace {

class ScriptedFixtureTest : public ScriptedFixture {};

TEST_F(ScriptedFixtureTest, EveryApiPlaysTheScriptThatTheUserNames) {
  model.scripts = {{"A", "Grüße 🙂."},
                   {"B",
                    "<think>\nHm.\n</think>\n\nI ask.\n<tool_call>\n{\"name\": \"w\", "
                    "\"arguments\": {\"c\": \"Zürich\"}}\n</tool_call>"}};
  model.added_tokens = {"<think>", "</think>"};
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  start_scripted();
  const Json tools = Json::array({scripted_tool("w", {{"c", {{"type", "string"}}}})});
  for (const ScriptedApi api : kScriptedApis) {
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(fmt::format("{} stream {}", path_of(api), stream));
      const ScriptedAnswer plain = ask({.api = api, .stream = stream, .tools = tools});
      EXPECT_EQ(plain.status, 200) << plain.body;
      EXPECT_EQ(plain.text, "Grüße 🙂.");
      EXPECT_EQ(plain.finish, "stop");
      const ScriptedAnswer called =
          ask({.api = api, .stream = stream, .script = "Go B", .tools = tools});
      EXPECT_EQ(called.reasoning, "Hm.\n");
      EXPECT_EQ(called.text, "I ask.");
      EXPECT_EQ(called.calls, (std::vector<ScriptedCall>{{"w", R"({"c":"Zürich"})"}}));
      EXPECT_EQ(called.order, (std::vector<std::string>{"reasoning", "text", "call"}));
      EXPECT_EQ(called.finish, "tool_calls");
      EXPECT_GT(called.prompt_tokens, 0);
      EXPECT_GT(called.completion_tokens, 10);
      const ScriptedAnswer cut = ask({.api = api, .stream = stream, .max_tokens = 2});
      EXPECT_EQ(cut.finish, "length");
      EXPECT_EQ(cut.completion_tokens, 2);
    }
  }
}

TEST_F(ScriptedFixtureTest, AnOpeningIsThePromptsEndAndPicksItsScript) {
  model.scripts = {{"\n", "Hm.</think>Yes"}};
  model.opening = "<think>\n";
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  start_scripted();
  const ScriptedAnswer answer = ask({});
  EXPECT_EQ(answer.reasoning, "Hm.");
  EXPECT_EQ(answer.text, "Yes");
}

}  // namespace
}  // namespace heddle::server

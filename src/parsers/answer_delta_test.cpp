// SPDX-License-Identifier: Apache-2.0
#include "parsers/answer_delta.h"

#include <gtest/gtest.h>

namespace heddle::parsers {
namespace {

TEST(AnswerDeltaTest, TextOfOneKindIsGatheredAndEmptyTextIsNoDelta) {
  AnswerDeltas deltas;
  add_reasoning("a", deltas);
  add_reasoning("b", deltas);
  add_content("", deltas);
  add_content("c", deltas);
  add_arguments(0, "{", deltas);
  add_arguments(0, "}", deltas);
  add_arguments(1, "{}", deltas);
  EXPECT_EQ(deltas, (AnswerDeltas{ReasoningDelta{"ab"}, ContentDelta{"c"}, ArgumentsDelta{0, "{}"},
                                  ArgumentsDelta{1, "{}"}}));
}

TEST(AssembledAnswerTest, AnIncompleteCallIsShownAsTheModelWroteIt) {
  AssembledAnswer answer;
  answer.add(ReasoningDelta{"why"});
  answer.add(ContentDelta{"Hi"});
  answer.add(ToolCallBegin{0, "call_0", "f"});
  answer.add(ArgumentsDelta{0, "{\"a\""});
  answer.add(ArgumentsDelta{0, ":1}"});
  answer.add(ToolCallEnd{0, true, ""});
  answer.add(ToolCallBegin{1, "call_1", "g"});
  answer.add(ArgumentsDelta{1, "{\"b"});
  answer.add(ToolCallEnd{1, false, " <tool_call>{\"b"});
  EXPECT_EQ(answer, (AssembledAnswer{.reasoning = "why",
                                     .content = "Hi <tool_call>{\"b",
                                     .calls = {{"call_0", "f", "{\"a\":1}"}}}));
}

}  // namespace
}  // namespace heddle::parsers

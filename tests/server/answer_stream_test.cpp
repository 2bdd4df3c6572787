// SPDX-License-Identifier: Apache-2.0
#include "server/call/answer_stream.h"

#include <gtest/gtest.h>

#include "models/registry.h"
#include "server/fake_codec.h"
#include "server/fake_engine.h"

namespace heddle::server {
namespace {

using parsers::AnswerDeltas;
using parsers::ContentDelta;
using parsers::ReasoningDelta;
using parsers::ReasoningFormat;
using parsers::ToolCallFormat;

constexpr TokenId kEnd = 9;  // "</think>"

RequestEvent event_of(std::string text, std::vector<TokenId> tokens) {
  RequestEvent event;
  event.text = std::move(text);
  event.tokens = std::move(tokens);
  return event;
}

RequestEvent last_event(Finish finish) {
  RequestEvent event;
  event.finish = std::move(finish);
  return event;
}

AnswerStream thinking(bool inside, std::optional<TokenId> end, bool stream_reasoning = true) {
  return AnswerStream(
      {.parser = {.reasoning = ReasoningFormat::kThink, .starts_in_reasoning = inside},
       .reasoning_end = end,
       .stream_reasoning = stream_reasoning});
}

TEST(AnswerStreamTest, ReasoningTokensAreCountedToTheClosingTag) {
  for (const auto end : {std::optional<TokenId>(kEnd), std::optional<TokenId>()}) {
    AnswerStream stream = thinking(true, end);
    EXPECT_EQ(stream.add(event_of("Hm", {1})), (AnswerDeltas{ReasoningDelta{"Hm"}}));
    EXPECT_EQ(stream.reasoning_tokens(), 1);
    EXPECT_EQ(stream.add(event_of("m", {2})), (AnswerDeltas{ReasoningDelta{"m"}}));
    // Several tokens in one event: with the tag's id it is exact.
    EXPECT_EQ(stream.add(event_of(".</think>\n\nSo", {3, kEnd, 4, 5})),
              (AnswerDeltas{ReasoningDelta{"."}, ContentDelta{"So"}}));
    EXPECT_EQ(stream.reasoning_tokens(), end ? 4 : 6);
    EXPECT_EQ(stream.add(event_of(" yes", {6})), (AnswerDeltas{ContentDelta{" yes"}}));
    EXPECT_EQ(stream.reasoning_tokens(), end ? 4 : 6);
  }
}

TEST(AnswerStreamTest, TheOpeningTagCountsOnceItIsOne) {
  AnswerStream stream = thinking(false, kEnd);
  EXPECT_TRUE(stream.add(event_of("<th", {1})).empty());
  EXPECT_EQ(stream.reasoning_tokens(), 0);
  EXPECT_EQ(stream.add(event_of("ink>a", {2, 3})), (AnswerDeltas{ReasoningDelta{"a"}}));
  EXPECT_EQ(stream.reasoning_tokens(), 3);

  AnswerStream plain = thinking(false, kEnd);
  EXPECT_TRUE(plain.add(event_of("<th", {1})).empty());
  EXPECT_EQ(plain.add(event_of("x>", {2})), (AnswerDeltas{ContentDelta{"<thx>"}}));
  EXPECT_EQ(plain.reasoning_tokens(), 0);
}

TEST(AnswerStreamTest, ReasoningIsOneDeltaWhereItIsNotStreamed) {
  AnswerStream stream = thinking(true, kEnd, /*stream_reasoning=*/false);
  EXPECT_TRUE(stream.add(event_of("H", {1})).empty());
  EXPECT_TRUE(stream.add(event_of("m</think>", {2, kEnd})).empty());
  EXPECT_EQ(stream.add(event_of("So", {3})),
            (AnswerDeltas{ReasoningDelta{"Hm"}, ContentDelta{"So"}}));

  AnswerStream cut = thinking(true, kEnd, /*stream_reasoning=*/false);
  EXPECT_TRUE(cut.add(event_of("Hm", {1})).empty());
  EXPECT_EQ(cut.add(last_event(finish_of(FinishReason::kLength))),
            (AnswerDeltas{ReasoningDelta{"Hm"}}));
}

TEST(AnswerStreamTest, AnAnswerThatStoppedAfterACallFinishesForIt) {
  const auto tools = std::make_shared<const nlohmann::ordered_json>(
      nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}}])"));
  const auto finish = [&tools](std::string text, FinishReason reason) {
    AnswerStream stream({.parser = {.tool_calls = ToolCallFormat::kQwen, .tools = tools}});
    RequestEvent event = last_event(finish_of(reason));
    event.text = std::move(text);
    (void)stream.add(event);
    return std::string(stream.finish_name(*event.finish));
  };
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  EXPECT_EQ(finish(call, FinishReason::kStop), "tool_calls");
  EXPECT_EQ(finish(call, FinishReason::kLength), "length");
  EXPECT_EQ(finish("no call", FinishReason::kStop), "stop");
  EXPECT_EQ(finish(R"(<tool_call>{"name": "f", "arguments": {")", FinishReason::kStop), "stop");
}

class TemplateCodec final : public FakeCodec {
 public:
  explicit TemplateCodec(std::string source) : source_(std::move(source)) {}

  [[nodiscard]] std::string chat_template_source() const override { return source_; }

 private:
  std::string source_;
};

TEST(AnswerStreamTest, FormatsComeFromTheTemplateUnlessTheyAreGiven) {
  const TemplateCodec codec("<tool_call> {{ content.split('</think>') }}");
  const AnswerFormats shown = find_answer_formats(codec, std::nullopt, std::nullopt);
  EXPECT_EQ(shown.tool_calls, ToolCallFormat::kQwen);
  EXPECT_EQ(shown.reasoning, ReasoningFormat::kThink);
  EXPECT_FALSE(shown.reasoning_end.has_value());  // its tag is eight tokens
  const AnswerFormats given =
      find_answer_formats(codec, ToolCallFormat::kNone, ReasoningFormat::kNone);
  EXPECT_EQ(given.tool_calls, ToolCallFormat::kNone);
  EXPECT_EQ(given.reasoning, ReasoningFormat::kNone);
}

TEST(AnswerStreamTest, AFamilyNamesItsFormatWhereTheTemplateShowsNone) {
  const TemplateCodec silent("List of tools: {{ tools }}");
  const TemplateCodec shows("<tool_call>");
  const auto format_of = [](const TextCodec& codec, std::optional<ToolCallFormat> given) {
    return find_answer_formats(codec, given, std::nullopt, "lfm2").tool_calls;
  };
  EXPECT_EQ(format_of(silent, std::nullopt), ToolCallFormat::kLfm2);
  EXPECT_EQ(format_of(shows, std::nullopt), ToolCallFormat::kQwen);
  EXPECT_EQ(format_of(silent, ToolCallFormat::kNone), ToolCallFormat::kNone);
  for (const models::Family& family : models::families()) {
    if (family.tool_call_format.empty()) continue;
    EXPECT_TRUE(parsers::tool_call_format(family.tool_call_format).ok()) << family.name;
  }
}

}  // namespace
}  // namespace heddle::server

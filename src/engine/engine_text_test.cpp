// SPDX-License-Identifier: Apache-2.0
// Tests where an answer ends, and which part of its text a client sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace heddle::engine {
namespace {

using ::heddle::testing::ByteTokenizer;
using ::testing::ElementsAre;

TEST(EngineTextTest, EndsAtEndOfSequenceWithoutItsText) {
  EngineFixture fixture;
  fixture.script({'H', 'i'});
  const Received received = fixture.run(EngineFixture::request("one", 3, 50));
  EXPECT_EQ(received.text, "Hi");
  EXPECT_THAT(received.tokens, ElementsAre('H', 'i', ByteTokenizer::kEos));
  EXPECT_EQ(received.reason(), FinishReason::kStop);
  EXPECT_EQ(received.finish->matched_token, ByteTokenizer::kEos);
}

TEST(EngineTextTest, LeavesTheStopTokensTextWhenAsked) {
  EngineFixture fixture;
  fixture.script({'H', 'i'});
  Request request = EngineFixture::request("one", 3, 50);
  request.stop.keep_stop_text = true;
  request.skip_special_tokens = false;
  EXPECT_EQ(fixture.run(request).text, "Hi<256>");
  request.skip_special_tokens = true;
  EXPECT_EQ(fixture.run(request).text, "Hi");
  request.stop.keep_stop_text = false;
  request.stop.token_ids = {'i'};
  const Received received = fixture.run(request);
  EXPECT_EQ(received.text, "H");
  EXPECT_EQ(received.finish->matched_token, 'i');
}

TEST(EngineTextTest, ContinuesAfterEndOfSequenceWithIgnoreEos) {
  EngineFixture fixture;
  fixture.script({'a', ByteTokenizer::kEos, 'b'});
  Request request = EngineFixture::request("one", 3, 3);
  request.stop.ignore_eos = true;
  const Received received = fixture.run(request);
  EXPECT_EQ(received.text, "ab");
  EXPECT_EQ(received.reason(), FinishReason::kLength);
}

TEST(EngineTextTest, AStopTextThatTheLastTokenCompletesIsCutOff) {
  EngineFixture fixture;
  fixture.script({'a', 'E', 'N', 'D'});
  Request request = EngineFixture::request("one", 3, 4);
  request.stop.texts = {"END"};
  const Received received = fixture.run(request);
  EXPECT_EQ(received.text, "a");
  EXPECT_EQ(received.reason(), FinishReason::kStop);
  EXPECT_EQ(received.finish->matched_text, "END");
  request.id = "two";
  request.stop.min_new_tokens = 4;
  EXPECT_EQ(fixture.run(request).reason(), FinishReason::kStop);
  request.id = "three";
  request.stop.texts = {"ENDS"};
  const Received incomplete = fixture.run(request);
  EXPECT_EQ(incomplete.text, "aEND");
  EXPECT_EQ(incomplete.reason(), FinishReason::kLength);
}

TEST(EngineTextTest, ReportsLengthWhenTheLastTokenWouldAlsoEndTheText) {
  EngineFixture fixture;
  fixture.script({'a'});
  EXPECT_EQ(fixture.run(EngineFixture::request("one", 3, 2)).reason(), FinishReason::kLength);
}

TEST(EngineTextTest, FindsStopTextsAcrossTokensAndHoldsBackOnlyTheirBeginning) {
  EngineFixture fixture;
  Request request = EngineFixture::request("one", 3, 50);
  request.stop.texts = {"END"};
  fixture.script({'a', 'b', 'E', 'N', 'x'});
  Received received = fixture.run(request);
  EXPECT_THAT(received.pieces, ElementsAre("a", "b", "", "", "ENx", ""));
  EXPECT_EQ(received.finish->matched_token, ByteTokenizer::kEos);

  fixture.script({'a', 'b', 'E', 'N', 'D', 'z'});
  received = fixture.run(request);
  EXPECT_THAT(received.pieces, ElementsAre("a", "b", "", "", ""));
  EXPECT_EQ(received.reason(), FinishReason::kStop);
  EXPECT_EQ(received.finish->matched_text, "END");
  EXPECT_THAT(received.tokens, ElementsAre('a', 'b', 'E', 'N', 'D'));

  request.stop.keep_stop_text = true;
  EXPECT_EQ(fixture.run(request).text, "abEND");
}

TEST(EngineTextTest, ReleasesHeldTextWhenTheRequestEndsOtherwise) {
  EngineFixture fixture;
  Request request = EngineFixture::request("one", 3, 2);
  request.stop.texts = {"END"};
  fixture.script({'E', 'N', 'D'});
  EXPECT_EQ(fixture.run(request).text, "EN");

  request.stop.max_new_tokens = 50;
  Received received;
  ASSERT_TRUE(fixture.submit(request, received).ok());
  fixture.engine->step();
  fixture.engine->step();
  fixture.engine->cancel("one");
  fixture.engine->step();
  EXPECT_EQ(received.text, "EN");
  EXPECT_EQ(received.reason(), FinishReason::kAbort);
}

TEST(EngineTextTest, EmitsCompleteCharactersOnly) {
  EngineFixture fixture;
  fixture.script(ByteTokenizer::tokens_of("\xF0\x9F\x98\x80!"));
  EXPECT_THAT(fixture.run(EngineFixture::request("one", 3, 50)).pieces,
              ElementsAre("", "", "", "\xF0\x9F\x98\x80", "!", ""));
  fixture.script(ByteTokenizer::tokens_of("\xE4\xBD\xA0\xE5"));
  EXPECT_THAT(fixture.run(EngineFixture::request("one", 3, 4)).pieces,
              ElementsAre("", "", "\xE4\xBD\xA0", "\xEF\xBF\xBD"));
}

TEST(EngineTextTest, KeepsStopTextsAndEndsAwayUntilMinNewTokens) {
  EngineFixture fixture;
  Request request = EngineFixture::request("one", 3, 50);
  request.stop.min_new_tokens = 4;
  request.stop.texts = {"ab"};
  fixture.script({'a', 'b', 'a', 'b'});
  const Received received = fixture.run(request);
  EXPECT_EQ(received.text, "ab");
  EXPECT_EQ(received.finish->matched_text, "ab");
  EXPECT_EQ(std::ssize(received.tokens), 4);
}

}  // namespace
}  // namespace heddle::engine

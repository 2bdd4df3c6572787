// SPDX-License-Identifier: Apache-2.0
// Where an answer ends, and which of its text a client sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_test_bench.h"

namespace heddle::engine {
namespace {

using ::heddle::testing::ByteTokenizer;
using ::testing::ElementsAre;

TEST(EngineTextTest, EndsAtEndOfSequenceWithoutItsText) {
  EngineBench bench;
  bench.script({'H', 'i'});
  const Heard heard = bench.run(EngineBench::request("one", 3, 50));
  EXPECT_EQ(heard.text, "Hi");
  EXPECT_THAT(heard.tokens, ElementsAre('H', 'i', ByteTokenizer::kEos));
  EXPECT_EQ(heard.reason(), FinishReason::kStop);
  EXPECT_EQ(heard.finish->matched_token, ByteTokenizer::kEos);
}

TEST(EngineTextTest, LeavesTheStopTokensTextWhenAsked) {
  EngineBench bench;
  bench.script({'H', 'i'});
  Request request = EngineBench::request("one", 3, 50);
  request.stop.keep_stop_text = true;
  request.skip_special_tokens = false;
  EXPECT_EQ(bench.run(request).text, "Hi<256>");
  request.skip_special_tokens = true;
  EXPECT_EQ(bench.run(request).text, "Hi");
  request.stop.keep_stop_text = false;
  request.stop.token_ids = {'i'};
  const Heard heard = bench.run(request);
  EXPECT_EQ(heard.text, "H");
  EXPECT_EQ(heard.finish->matched_token, 'i');
}

TEST(EngineTextTest, GoesOnAfterEndOfSequenceWhenToldToIgnoreIt) {
  EngineBench bench;
  bench.script({'a', ByteTokenizer::kEos, 'b'});
  Request request = EngineBench::request("one", 3, 3);
  request.stop.ignore_eos = true;
  const Heard heard = bench.run(request);
  EXPECT_EQ(heard.text, "ab");
  EXPECT_EQ(heard.reason(), FinishReason::kLength);
}

TEST(EngineTextTest, AStopTextThatTheLastTokenCompletesIsNotSeen) {
  EngineBench bench;
  bench.script({'a', 'E', 'N', 'D'});
  Request request = EngineBench::request("one", 3, 4);
  request.stop.texts = {"END"};
  const Heard heard = bench.run(request);
  EXPECT_EQ(heard.text, "a");
  EXPECT_EQ(heard.reason(), FinishReason::kStop);
  EXPECT_EQ(heard.finish->matched_text, "END");
  request.id = "two";
  request.stop.min_new_tokens = 4;
  EXPECT_EQ(bench.run(request).reason(), FinishReason::kStop);
  request.id = "three";
  request.stop.texts = {"ENDS"};
  const Heard incomplete = bench.run(request);
  EXPECT_EQ(incomplete.text, "aEND");
  EXPECT_EQ(incomplete.reason(), FinishReason::kLength);
}

TEST(EngineTextTest, ReportsLengthWhenTheLastTokenWouldAlsoEndTheText) {
  EngineBench bench;
  bench.script({'a'});
  EXPECT_EQ(bench.run(EngineBench::request("one", 3, 2)).reason(), FinishReason::kLength);
}

TEST(EngineTextTest, FindsStopTextsAcrossTokensAndHoldsBackOnlyTheirBeginning) {
  EngineBench bench;
  Request request = EngineBench::request("one", 3, 50);
  request.stop.texts = {"END"};
  bench.script({'a', 'b', 'E', 'N', 'x'});
  Heard heard = bench.run(request);
  EXPECT_THAT(heard.pieces, ElementsAre("a", "b", "", "", "ENx", ""));
  EXPECT_EQ(heard.finish->matched_token, ByteTokenizer::kEos);

  bench.script({'a', 'b', 'E', 'N', 'D', 'z'});
  heard = bench.run(request);
  EXPECT_THAT(heard.pieces, ElementsAre("a", "b", "", "", ""));
  EXPECT_EQ(heard.reason(), FinishReason::kStop);
  EXPECT_EQ(heard.finish->matched_text, "END");
  EXPECT_THAT(heard.tokens, ElementsAre('a', 'b', 'E', 'N', 'D'));

  request.stop.keep_stop_text = true;
  EXPECT_EQ(bench.run(request).text, "abEND");
}

TEST(EngineTextTest, ReleasesHeldTextWhenTheRequestEndsOtherwise) {
  EngineBench bench;
  Request request = EngineBench::request("one", 3, 2);
  request.stop.texts = {"END"};
  bench.script({'E', 'N', 'D'});
  EXPECT_EQ(bench.run(request).text, "EN");

  request.stop.max_new_tokens = 50;
  Heard heard;
  ASSERT_TRUE(bench.submit(request, heard).ok());
  bench.engine->step();
  bench.engine->step();
  bench.engine->cancel("one");
  bench.engine->step();
  EXPECT_EQ(heard.text, "EN");
  EXPECT_EQ(heard.reason(), FinishReason::kAbort);
}

TEST(EngineTextTest, EmitsCompleteCharactersOnly) {
  EngineBench bench;
  bench.script(ByteTokenizer::tokens_of("\xF0\x9F\x98\x80!"));
  EXPECT_THAT(bench.run(EngineBench::request("one", 3, 50)).pieces,
              ElementsAre("", "", "", "\xF0\x9F\x98\x80", "!", ""));
  bench.script(ByteTokenizer::tokens_of("\xE4\xBD\xA0\xE5"));
  EXPECT_THAT(bench.run(EngineBench::request("one", 3, 4)).pieces,
              ElementsAre("", "", "\xE4\xBD\xA0", "\xEF\xBF\xBD"));
}

TEST(EngineTextTest, KeepsStopTextsAndEndsAwayUntilMinNewTokens) {
  EngineBench bench;
  Request request = EngineBench::request("one", 3, 50);
  request.stop.min_new_tokens = 4;
  request.stop.texts = {"ab"};
  bench.script({'a', 'b', 'a', 'b'});
  const Heard heard = bench.run(request);
  EXPECT_EQ(heard.text, "ab");
  EXPECT_EQ(heard.finish->matched_text, "ab");
  EXPECT_EQ(std::ssize(heard.tokens), 4);
}

}  // namespace
}  // namespace heddle::engine

// SPDX-License-Identifier: Apache-2.0
#include "request/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::request {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kEos[] = {9, 7};

Request request_with(StopConditions stop) {
  Request request;
  request.id = "one";
  request.prompt = {1, 2, 3};
  request.stop = std::move(stop);
  return request;
}

TEST(SequenceTest, EndsAtStopIdsAndUnlessIgnoredAtTheModelsEnd) {
  const Sequence both(1, request_with({.token_ids = {5, 7}}), 0, kEos);
  EXPECT_THAT(both.ending_tokens, ElementsAre(5, 7, 9));
  EXPECT_TRUE(both.ends_text(7));
  EXPECT_FALSE(both.ends_text(6));
  const Sequence ignoring(1, request_with({.token_ids = {5}, .ignore_eos = true}), 0, kEos);
  EXPECT_THAT(ignoring.ending_tokens, ElementsAre(5));
}

TEST(SequenceTest, ForbidsTheEndUntilEnoughTokensWereDrawn) {
  Sequence sequence(1, request_with({.min_new_tokens = 2}), 0, kEos);
  EXPECT_THAT(sequence.forbidden_tokens(), ElementsAre(7, 9));
  sequence.tokens.push_back(4);
  EXPECT_THAT(sequence.forbidden_tokens(), ElementsAre(7, 9));
  sequence.tokens.push_back(4);
  EXPECT_THAT(sequence.forbidden_tokens(), IsEmpty());
}

TEST(SequenceTest, CountsWhatIsPendingAndWhatItWillStore) {
  Sequence sequence(1, request_with({.max_new_tokens = 4}), 0, kEos);
  EXPECT_EQ(sequence.num_pending(), 3);
  EXPECT_FALSE(sequence.decoding());
  EXPECT_EQ(sequence.max_stored_tokens(), 6);  // 3 and 4, less the last one
  sequence.num_computed = 3;
  sequence.tokens.push_back(8);
  EXPECT_TRUE(sequence.decoding());
  EXPECT_THAT(sequence.output_tokens(), ElementsAre(8));
  EXPECT_EQ(Sequence(1, request_with({.max_new_tokens = 0}), 0, kEos).max_stored_tokens(), 3);
}

}  // namespace
}  // namespace heddle::request

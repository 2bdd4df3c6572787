// SPDX-License-Identifier: Apache-2.0
#include "speculative/ngram_drafter.h"

#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

using request::Sequence;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<TokenId>;

Sequence sequence_of(int64_t id, Tokens prompt, std::string name_space = "") {
  Request request;
  request.prompt = std::move(prompt);
  request.cache_namespace = std::move(name_space);
  request.stop.max_new_tokens = 100;
  return {id, std::move(request), 0, {}};
}

Tokens drafts_for(NgramDrafter& drafter, const Sequence& sequence, int64_t most = 4) {
  Drafts drafts;
  drafter.observe(sequence);
  drafter.propose(sequence, most, drafts);
  return drafts.tokens;
}

TEST(NgramDrafterTest, CopiesFromTheTextItself) {
  NgramDrafter drafter;
  Sequence sequence = sequence_of(1, {1, 2, 3, 4, 5, 6, 9, 1, 2, 3});
  EXPECT_THAT(drafts_for(drafter, sequence), ElementsAre(4, 5, 6, 9));
  EXPECT_THAT(drafts_for(drafter, sequence, 2), ElementsAre(4, 5));
  sequence.tokens.push_back(8);
  EXPECT_THAT(drafts_for(drafter, sequence), IsEmpty());
}

TEST(NgramDrafterTest, CopiesFromTextsThatEndedButNotAcrossNamespaces) {
  NgramDrafter drafter;
  const Sequence first = sequence_of(1, {1, 2, 3, 4, 5});
  const Sequence secret = sequence_of(2, {6, 7, 8, 9, 10}, "tenant");
  for (const Sequence* ended : {&first, &secret}) {
    drafter.observe(*ended);
    EXPECT_THAT(drafts_for(drafter, sequence_of(3, {20, 1, 2, 3})),
                ended == &first ? Tokens{} : Tokens({4, 5}))
        << "a text that runs drafts for itself alone";
    drafter.forget(*ended);
    drafter.forget(sequence_of(3, {20, 1, 2, 3}));
  }
  EXPECT_THAT(drafts_for(drafter, sequence_of(4, {6, 7, 8})), IsEmpty());
  EXPECT_THAT(drafts_for(drafter, sequence_of(5, {1, 2, 3}, "tenant")), IsEmpty());
}

TEST(NgramDrafterTest, DraftsLessWhereDraftsDoNotHold) {
  NgramDrafter drafter;
  Sequence sequence = sequence_of(1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3});
  EXPECT_EQ(drafts_for(drafter, sequence, 4).size(), 4u);
  std::vector<size_t> proposed;
  for (int i = 0; i < 24; ++i) {  // the text always comes back to 1 2 3 and never goes on with 4
    sequence.tokens.insert(sequence.tokens.end(), {30 + i, 1, 2, 3});
    proposed.push_back(drafts_for(drafter, sequence, 4).size());
  }
  EXPECT_EQ(proposed[0], 2u);
  EXPECT_EQ(proposed[1], 1u);
  EXPECT_EQ(std::ranges::count(proposed, 0u) > 8, true) << "silent most of the time";
  EXPECT_LE(*std::ranges::max_element(proposed.begin() + 1, proposed.end()), 1u);
}

TEST(NgramDrafterTest, DraftsMoreAgainAsTheyHold) {
  NgramDrafter drafter;
  Sequence sequence = sequence_of(1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 51, 52, 53, 1, 2, 3});
  EXPECT_EQ(drafts_for(drafter, sequence, 4).size(), 4u);
  sequence.tokens.insert(sequence.tokens.end(), {60, 1, 2, 3, 4, 5});  // none held
  const Tokens fewer = drafts_for(drafter, sequence, 4);
  EXPECT_THAT(fewer, ElementsAre(6, 7));
  sequence.tokens.insert(sequence.tokens.end(), fewer.begin(), fewer.end());
  EXPECT_THAT(drafts_for(drafter, sequence, 4), ElementsAre(8, 9, 50, 51));
}

Drafts ways_for(NgramDrafter& drafter, const Sequence& sequence, int64_t most) {
  Drafts drafts;
  drafter.observe(sequence);
  drafter.propose(sequence, most, drafts);
  return drafts;
}

TEST(NgramDrafterTest, DraftsAllWaysThatTheSameTokensWentOn) {
  NgramDrafter drafter(3);
  Sequence ended = sequence_of(1, {20, 1, 2, 3, 60, 61, 62});
  drafter.observe(ended);
  drafter.forget(ended);
  Sequence sequence = sequence_of(2, {1, 2, 3, 40, 41, 42, 43, 9, 1, 2, 3, 50, 51, 8, 1, 2, 3});
  Drafts drafts = ways_for(drafter, sequence, 6);
  EXPECT_THAT(drafts.tokens, ElementsAre(50, 51, 8, 40, 60, 61)) << "half for the latest";
  EXPECT_THAT(drafts.parents, ElementsAre(-1, 0, 1, -1, -1, 4));
  drafts = ways_for(drafter, sequence, 2);
  EXPECT_THAT(drafts.tokens, ElementsAre(50, 40));
  EXPECT_THAT(drafts.parents, ElementsAre(-1, -1));
  drafts = ways_for(drafter, sequence, 1);
  EXPECT_THAT(drafts.tokens, ElementsAre(50));
  EXPECT_THAT(drafts.parents, IsEmpty()) << "a chain";

  NgramDrafter of_chains;
  of_chains.observe(ended);
  of_chains.forget(ended);
  drafts = ways_for(of_chains, sequence, 4);
  EXPECT_THAT(drafts.tokens, ElementsAre(50, 51, 8, 1));
  EXPECT_THAT(drafts.parents, IsEmpty());
}

TEST(NgramDrafterTest, SecondWaysThatHoldKeepItDrafting) {
  NgramDrafter drafter(2);
  const Tokens start = {1, 2, 3, 40, 41, 1, 2, 3, 50, 51, 1, 2, 3};
  Sequence sequence = sequence_of(1, start);
  EXPECT_EQ(ways_for(drafter, sequence, 8).tokens.size(), 8u);
  sequence.tokens.insert(sequence.tokens.end(), {40, 41, 1, 2, 3, 70, 1, 2, 3});
  EXPECT_EQ(ways_for(drafter, sequence, 8).tokens.size(), 8u) << "some of the second way held";
  sequence.tokens.insert(sequence.tokens.end(), {80, 1, 2, 3});
  EXPECT_EQ(ways_for(drafter, sequence, 8).tokens.size(), 4u) << "no way held";
}

TEST(NgramDrafterTest, ForgetsSequencesAndTakesThemBack) {
  NgramDrafter drafter;
  Sequence sequence = sequence_of(1, {1, 2, 3, 4, 1, 2, 3}, "own");
  EXPECT_FALSE(drafts_for(drafter, sequence).empty());
  drafter.forget(sequence);
  EXPECT_THAT(drafts_for(drafter, sequence), ElementsAre(4, 1, 2, 3)) << "all is indexed again";
}

}  // namespace
}  // namespace heddle::speculative

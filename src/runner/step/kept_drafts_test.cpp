// SPDX-License-Identifier: Apache-2.0
#include "runner/step/kept_drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::runner {
namespace {

using request::kKeptDraft;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class KeptDraftsTest : public ::testing::Test {
 protected:
  // A plan of one sequence, which verifies these.
  const request::PlannedSequence& verify(int64_t sequence_id, int32_t batch_slot,
                                         const std::vector<TokenId>& drafts) {
    plan_.clear();
    plan_.sequences.push_back({.sequence_id = sequence_id, .batch_slot = batch_slot});
    plan_.sequences.back().drafts = plan_.add_tokens(drafts);
    return plan_.sequences.back();
  }

  request::BatchPlan plan_;
  KeptDrafts kept_{3};
};

TEST_F(KeptDraftsTest, ThoseOfAPlanAreAsTheyAre) {
  kept_.keep(1, 70, std::vector<TokenId>{5, 6});
  const auto& sequence = verify(70, 1, {8, 9, 10});
  EXPECT_TRUE(kept_.check(plan_, sequence).ok());
  EXPECT_THAT(kept_.tokens(plan_, sequence), ElementsAre(8, 9, 10));
  EXPECT_THAT(kept_.places(plan_, sequence), IsEmpty());
}

TEST_F(KeptDraftsTest, ThoseOfADeviceAreLearntLater) {
  kept_.keep_places(1, 70, std::vector<int32_t>{3, 13, 23}, 0);
  kept_.keep(2, 71, std::vector<TokenId>{40, 41});
  EXPECT_TRUE(kept_.has_places());
  const auto& sequence = verify(70, 1, {kKeptDraft, kKeptDraft});
  EXPECT_TRUE(kept_.check(plan_, sequence).ok());
  EXPECT_THAT(kept_.tokens(plan_, sequence), ElementsAre(0, 0));
  EXPECT_THAT(kept_.places(plan_, sequence), ElementsAre(3, 13));
  kept_.read_back([](int32_t place, int32_t table) { return place + 100 + table; });
  EXPECT_FALSE(kept_.has_places());
  EXPECT_THAT(kept_.tokens(plan_, sequence), ElementsAre(103, 113));
  EXPECT_THAT(kept_.places(plan_, sequence), IsEmpty());
  EXPECT_THAT(kept_.tokens(plan_, verify(71, 2, {kKeptDraft})), ElementsAre(40));
}

// Also what was learnt once is not learnt again from places that hold other tokens by then.
TEST_F(KeptDraftsTest, StayWhileOtherSequencesGetTheirs) {
  kept_.keep_places(0, 70, std::vector<int32_t>{0}, 1);
  kept_.read_back([](int32_t, int32_t table) { return 8 + table; });
  kept_.keep_places(1, 71, std::vector<int32_t>{0}, 1);
  kept_.read_back([](int32_t, int32_t) { return 11; });
  EXPECT_THAT(kept_.tokens(plan_, verify(70, 0, {kKeptDraft})), ElementsAre(9));
  EXPECT_THAT(kept_.tokens(plan_, verify(71, 1, {kKeptDraft})), ElementsAre(11));
}

TEST_F(KeptDraftsTest, NoMoreAreVerifiedThanThereAre) {
  kept_.keep(1, 70, std::vector<TokenId>{5, 6});
  EXPECT_THAT(kept_.check(plan_, verify(70, 1, {kKeptDraft, kKeptDraft, kKeptDraft})).message(),
              HasSubstr("verifies 3 drafts that were kept, of 2"));
  EXPECT_THAT(kept_.check(plan_, verify(71, 1, {kKeptDraft})).message(),
              HasSubstr("verifies 1 drafts that were kept, of 0"));
  kept_.keep(1, 71, {});
  kept_.keep(2, 72, std::vector<TokenId>{5, 6});
  EXPECT_TRUE(kept_.check(plan_, verify(72, 2, {kKeptDraft})).ok());
  kept_.drop(2);
  EXPECT_FALSE(kept_.check(plan_, verify(72, 2, {kKeptDraft})).ok());
  EXPECT_FALSE(kept_.check(plan_, verify(70, 1, {kKeptDraft})).ok());
}

}  // namespace
}  // namespace heddle::runner

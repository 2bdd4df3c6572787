// SPDX-License-Identifier: Apache-2.0
#include "server/call/early_aborts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace heddle::server {
namespace {

TEST(EarlyAbortsTest, CountForTheCallsThatArrivedBefore) {
  EarlyAborts aborts;
  const auto early = aborts.arrive();
  EXPECT_TRUE(aborts.abort("a"));
  const auto late = aborts.arrive();
  EXPECT_TRUE(aborts.aborted("a", *early));
  EXPECT_FALSE(aborts.aborted("b", *early));
  EXPECT_FALSE(aborts.aborted("a", *late));
  EXPECT_TRUE(aborts.abort("a"));
  EXPECT_TRUE(aborts.aborted("a", *late));
  aborts.abort_all();
  const auto latest = aborts.arrive();
  EXPECT_TRUE(aborts.aborted("b", *late));
  EXPECT_FALSE(aborts.aborted("b", *latest));
}

TEST(EarlyAbortsTest, CountForTheirHolderOrForAll) {
  EarlyAborts aborts;
  const auto mine = aborts.arrive("me");
  const auto yours = aborts.arrive("you");
  const auto shared = aborts.arrive();
  EXPECT_TRUE(aborts.abort("a", "me"));
  EXPECT_TRUE(aborts.aborted("a", *mine));
  EXPECT_FALSE(aborts.aborted("a", *yours));
  EXPECT_FALSE(aborts.aborted("a", *shared));
  EXPECT_TRUE(aborts.abort("a", ""));
  EXPECT_TRUE(aborts.aborted("a", *shared));
  EXPECT_FALSE(aborts.aborted("a", *yours));
  EXPECT_TRUE(aborts.abort("a"));
  EXPECT_TRUE(aborts.aborted("a", *yours));
}

TEST(EarlyAbortsTest, AreForgottenOnceEveryCallTheyMayMeanIsUnderstood) {
  EarlyAborts aborts;
  auto oldest = aborts.arrive();
  for (size_t i = 0; i < EarlyAborts::kMaxIds; ++i) {
    EXPECT_TRUE(aborts.abort(fmt::format("id{}", i)));
  }
  EXPECT_FALSE(aborts.abort("one-more"));
  auto second = aborts.arrive();
  EXPECT_FALSE(aborts.abort("one-more")) << "the oldest call still waits";
  oldest.reset();
  EXPECT_TRUE(aborts.abort("one-more")) << "the second came after all others";
  EXPECT_TRUE(aborts.aborted("one-more", *second));
  EXPECT_FALSE(aborts.aborted("id0", *second));
}

TEST(EarlyAbortsTest, OneIdTakesOneRoomHoweverOftenItIsAborted) {
  EarlyAborts aborts;
  const auto oldest = aborts.arrive();
  for (size_t i = 0; i <= EarlyAborts::kMaxIds; ++i) EXPECT_TRUE(aborts.abort("a"));
  auto second = aborts.arrive();
  for (size_t i = 0; i <= EarlyAborts::kMaxIds; ++i) {
    const auto another = aborts.arrive();
    EXPECT_TRUE(aborts.abort("a"));
  }
  EXPECT_TRUE(aborts.aborted("a", *second));
  for (size_t i = 1; i < EarlyAborts::kMaxIds; ++i) {
    EXPECT_TRUE(aborts.abort(fmt::format("id{}", i)));
  }
  EXPECT_FALSE(aborts.abort("one-more"));
  EXPECT_TRUE(aborts.abort("a")) << "it has its place";
}

TEST(EarlyAbortsTest, ALaterAbortOfAnIdOutlastsTheOthers) {
  EarlyAborts aborts;
  auto first = aborts.arrive();
  EXPECT_TRUE(aborts.abort("a"));
  EXPECT_TRUE(aborts.abort("b"));
  const auto second = aborts.arrive();
  EXPECT_TRUE(aborts.abort("a"));
  first.reset();
  EXPECT_TRUE(aborts.aborted("a", *second));
  EXPECT_FALSE(aborts.aborted("b", *second));
}

TEST(EarlyAbortsTest, TakeNoRoomWhileNoCallWaitsOrForWhatIsNoId) {
  EarlyAborts aborts;
  for (size_t i = 0; i <= EarlyAborts::kMaxIds; ++i) EXPECT_TRUE(aborts.abort("a"));
  const auto call = aborts.arrive();
  EXPECT_FALSE(aborts.aborted("a", *call));
  for (size_t i = 0; i <= EarlyAborts::kMaxIds; ++i) EXPECT_TRUE(aborts.abort("not an id"));
}

}  // namespace
}  // namespace heddle::server

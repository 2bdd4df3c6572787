// SPDX-License-Identifier: Apache-2.0
#include "scheduler/stream_drafts.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Drafts the numbers that follow the last token, as many as it may, or `eager` of them.
class Counting final : public speculative::Drafter {
 public:
  struct Log {
    int64_t eager = 63;
    bool branches = false;
    int64_t observed = 0;
    int64_t forgotten = 0;
  };

  explicit Counting(Log& log) : log_(log) {}

  void observe(const request::Sequence&) override { ++log_.observed; }

  void propose(const request::Sequence& sequence, int64_t most,
               speculative::Drafts& drafts) override {
    drafts.tokens.resize(static_cast<size_t>(std::min(most, log_.eager)));
    std::iota(drafts.tokens.begin(), drafts.tokens.end(), sequence.tokens.back() + 1);
    if (!log_.branches) return;
    drafts.parents.assign(drafts.tokens.size(), -1);  // all follow the text
  }

  void forget(const request::Sequence&) override { ++log_.forgotten; }

 private:
  Log& log_;
};

class StreamDraftsTest : public ::testing::Test {
 protected:
  // A stream of `tokens` tokens, the last of which is drawn and not computed.
  RunningSequence* stream(TokenId last, int64_t max_new_tokens = 100) {
    Request request{.prompt = {1, 2, last}};
    request.stop.max_new_tokens = max_new_tokens;
    request::Sequence& sequence = sequences_.emplace_back(
        std::ssize(sequences_), std::move(request), 0, std::span<const TokenId>());
    sequence.num_prompt_tokens = 2;  // the last one is output
    sequence.num_computed = 2;
    RunningSequence& running = running_.emplace_back();
    running.sequence = &sequence;
    running.num_planned = 2;
    return &running;
  }

  StreamDrafts make(StreamDraftsOptions options = {
                        .max_drafts = 3, .max_rows = 16, .adapts = false}) {
    return {std::make_unique<Counting>(log_), options, cost_, odds_};
  }

  StreamDrafts make_without_drafter(const StreamDraftsOptions& options) {
    return {nullptr, options, cost_, odds_};
  }

  // So many steps of a stream that their time is known.
  void know(int64_t rows, double seconds) {
    for (int64_t i = 0; i < speculative::DraftCost::kPlainTries; ++i) {
      cost_.add({.num_streams = 1, .num_rows = rows, .num_tokens = rows, .seconds = seconds});
    }
  }

  Counting::Log log_;
  speculative::DraftCost cost_;
  speculative::DraftOdds odds_;
  std::deque<request::Sequence> sequences_;
  std::deque<RunningSequence> running_;
};

TEST_F(StreamDraftsTest, WithoutADrafterThereAreNone) {
  StreamDrafts drafts = make_without_drafter({.max_drafts = 3, .max_rows = 16});
  const std::vector<RunningSequence*> streams = {stream(10)};
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), IsEmpty());
  streams[0]->draws_in_flight = 1;
  EXPECT_FALSE(drafts.waits_for(streams));
  drafts.ended(*streams[0]->sequence);
}

TEST_F(StreamDraftsTest, EachStreamGetsItsOwn) {
  StreamDrafts drafts = make();
  const std::vector<RunningSequence*> streams = {stream(10), stream(20)};
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), ElementsAre(11, 12, 13));
  EXPECT_THAT(drafts.of(1), ElementsAre(21, 22, 23));
  drafts.ended(*streams[0]->sequence);
  EXPECT_EQ(log_.forgotten, 1);
}

TEST_F(StreamDraftsTest, RowsOfTheStepAndOfDraftsAreKept) {
  const std::vector<RunningSequence*> streams = {stream(10), stream(20), stream(30)};
  StreamDrafts few = make({.max_drafts = 3, .max_rows = 6, .adapts = false});
  few.propose(streams, 100);
  EXPECT_THAT(few.of(0), ElementsAre(11, 12, 13));
  EXPECT_THAT(few.of(1), ElementsAre(21));  // with the row before it
  EXPECT_THAT(few.of(2), IsEmpty());
  StreamDrafts full = make();
  full.propose(streams, 4);
  EXPECT_THAT(full.of(0), ElementsAre(11, 12, 13));
  EXPECT_THAT(full.of(1), ElementsAre(21));
  EXPECT_THAT(full.of(2), IsEmpty());
}

// A form that forces some tokens now, and anything behind them.
class Forcing final : public ConstraintState {
 public:
  explicit Forcing(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {}

  [[nodiscard]] bool accept(TokenId) override { return true; }

  void roll_back(int64_t) override {}

  [[nodiscard]] bool is_complete() const override { return false; }

  [[nodiscard]] bool is_over() const override { return false; }

  [[nodiscard]] Status fill_mask(std::span<uint32_t>) override { return {}; }

  void forced_tokens(int64_t most, std::vector<TokenId>& tokens) override {
    const auto count = std::min(most, std::ssize(tokens_));
    tokens.insert(tokens.end(), tokens_.begin(), tokens_.begin() + count);
  }

 private:
  std::vector<TokenId> tokens_;
};

TEST_F(StreamDraftsTest, TokensThatAFormForcesNeedNoDrafter) {
  StreamDrafts drafts = make_without_drafter({.max_rows = 7});
  const std::vector<RunningSequence*> streams = {stream(10), stream(20), stream(30)};
  streams[0]->sequence->constraint = std::make_unique<Forcing>(std::vector<TokenId>{1, 2, 3});
  streams[2]->sequence->constraint = std::make_unique<Forcing>(std::vector<TokenId>{4, 5, 6});
  drafts.propose(streams, 100);
  EXPECT_THAT(drafts.of(0), ElementsAre(1, 2, 3));
  EXPECT_TRUE(drafts.forced(0));
  EXPECT_THAT(drafts.of(1), IsEmpty());
  EXPECT_FALSE(drafts.forced(1));
  EXPECT_THAT(drafts.of(2), ElementsAre(4, 5)) << "as many as there are rows";
  drafts.propose(streams, 2);
  EXPECT_THAT(drafts.of(0), ElementsAre(1, 2));
  EXPECT_THAT(drafts.of(2), IsEmpty());
  streams[0]->most_forced = 1;
  streams[2]->draws_in_flight = 1;
  drafts.propose(streams, 100);
  EXPECT_THAT(drafts.of(0), ElementsAre(1));
  EXPECT_THAT(drafts.of(2), IsEmpty()) << "it is not known what comes before";
  EXPECT_FALSE(drafts.waits_for(streams));
}

TEST_F(StreamDraftsTest, TokensAreForcedOnlyUpToTheEndOfTheText) {
  StreamDrafts drafts = make_without_drafter({.max_rows = 16});
  const std::vector<RunningSequence*> streams = {stream(10, /*max_new_tokens=*/3)};
  streams[0]->sequence->constraint = std::make_unique<Forcing>(std::vector<TokenId>{1, 2, 3});
  drafts.propose(streams, 100);
  EXPECT_THAT(drafts.of(0), ElementsAre(1)) << "the last token is drawn and never computed";
}

TEST_F(StreamDraftsTest, ADraftersDraftsStayWhereTheyAgreeWithForcedTokens) {
  StreamDrafts drafts = make();
  const std::vector<RunningSequence*> streams = {stream(10), stream(20), stream(30)};
  streams[0]->sequence->constraint = std::make_unique<Forcing>(std::vector<TokenId>{11, 12});
  streams[1]->sequence->constraint = std::make_unique<Forcing>(std::vector<TokenId>{21, 7});
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), ElementsAre(11, 12, 13));
  EXPECT_FALSE(drafts.forced(0));
  EXPECT_THAT(drafts.of(1), ElementsAre(21, 7));
  EXPECT_TRUE(drafts.forced(1));
  EXPECT_THAT(drafts.of(2), ElementsAre(31, 32, 33));
}

TEST_F(StreamDraftsTest, StepsWithForcedTokensAreNotWaitedFor) {
  StreamDrafts drafts = make({.max_drafts = 3, .max_rows = 16});  // adapts: nothing is known yet
  const std::vector<RunningSequence*> streams = {stream(10)};
  streams[0]->draws_in_flight = 1;
  streams[0]->drafts_in_flight = 2;
  EXPECT_TRUE(drafts.waits_for(streams));
  streams[0]->forced_in_flight = true;
  EXPECT_FALSE(drafts.waits_for(streams));
}

TEST_F(StreamDraftsTest, ManyStreamsAreNotAskedFor) {
  StreamDrafts drafts = make({.max_drafts = 3, .max_rows = 4, .adapts = false});
  const std::vector<RunningSequence*> streams = {stream(10), stream(20), stream(30)};
  drafts.propose(streams, 100);
  EXPECT_THAT(drafts.of(0), IsEmpty());
  EXPECT_EQ(log_.observed, 0);
}

// Parents come before their children: the first drafts of a tree are one, too.
TEST_F(StreamDraftsTest, TreesAreCutBehind) {
  log_.branches = true;
  StreamDrafts drafts = make({.max_drafts = 5, .max_rows = 16, .adapts = false});
  const std::vector<RunningSequence*> streams = {stream(10), stream(20, 4)};
  drafts.propose(streams, 7);
  EXPECT_THAT(drafts.of(0), ElementsAre(11, 12, 13, 14, 15));
  EXPECT_THAT(drafts.parents_of(0), ElementsAre(-1, -1, -1, -1, -1));
  EXPECT_THAT(drafts.of(1), ElementsAre(21, 22));
  EXPECT_EQ(drafts.parents_of(1)[1], -1);
}

TEST_F(StreamDraftsTest, TheRunnersAreTakenWhereItMakesThem) {
  StreamDrafts drafts =
      make_without_drafter({.max_drafts = 3, .max_rows = 16, .adapts = false, .max_made = 3});
  const std::vector<RunningSequence*> streams = {stream(10), stream(20), stream(30, 5)};
  streams[0]->made_drafts = {.tokens = {11, 12, 13}, .parents = {-1, 0, -1}};
  streams[2]->made_drafts = {.tokens = {31, 32, 33}, .parents = {-1, 0, 1}};
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), ElementsAre(11, 12, 13));
  EXPECT_THAT(drafts.of(1), IsEmpty());
  EXPECT_THAT(drafts.of(2), ElementsAre(31, 32, 33));
  EXPECT_THAT(drafts.parents_of(0), ElementsAre(-1, 0, -1));
  EXPECT_THAT(drafts.parents_of(1), IsEmpty());
  EXPECT_THAT(drafts.parents_of(2), IsEmpty()) << "a chain";
  EXPECT_EQ(drafts.wanted(0), 3);
  EXPECT_EQ(drafts.wanted(1), 3);
  EXPECT_EQ(drafts.wanted(2), 2) << "behind the next token and one that is drawn";
  EXPECT_EQ(drafts.wanted_behind_prompts(streams), 3);
  EXPECT_TRUE(drafts.follows_prompts(streams));
  EXPECT_FALSE(drafts.follows_prompts(std::vector<RunningSequence*>(8, streams[0])))
      << "nine streams have no drafts in 16 rows";

  EXPECT_FALSE(drafts.waits_for(streams)) << "no step in flight has to do with drafts";
  streams[1]->made_in_flight = true;
  EXPECT_TRUE(drafts.waits_for(streams));
}

// A level of drafts takes a row for each branch.
TEST_F(StreamDraftsTest, BranchesTakeRowsOfTheNetwork) {
  StreamDrafts drafts = make_without_drafter(
      {.max_drafts = 3, .max_rows = 20, .adapts = false, .max_made = 3, .topk = 8});
  const std::vector<RunningSequence*> streams = {stream(10), stream(20), stream(30)};
  drafts.propose(streams, 16);
  EXPECT_EQ(drafts.wanted(0), 3);
  EXPECT_EQ(drafts.wanted(1), 3);
  EXPECT_EQ(drafts.wanted(2), 0) << "8 branches, and 4 rows are left";
}

// A depth that is hardly worse than another is kept, one that was not there is not taken.
TEST_F(StreamDraftsTest, ADraftersDepthStaysWhileItIsAboutAsGood) {
  StreamDrafts drafts = make({.max_drafts = 1, .max_rows = 16});
  const std::vector<RunningSequence*> streams = {stream(10)};
  know(1, 1.0);
  know(2, 1.2);
  drafts.propose(streams, 16);
  ASSERT_THAT(drafts.of(0), ElementsAre(11));
  // With all the credit there can be 0.9 of plain decoding would begin, 0.85 of it would end it.
  for (int i = 0; i < 40; ++i) know(2, odds_.expected_tokens(1, 1) / 0.87);
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), ElementsAre(11));
  StreamDrafts others = make({.max_drafts = 1, .max_rows = 16});
  others.propose(streams, 16);
  EXPECT_THAT(others.of(0), IsEmpty());
}

TEST_F(StreamDraftsTest, AsManyOfTheRunnersAreWantedAsPay) {
  StreamDrafts drafts = make_without_drafter({.max_drafts = 7, .max_rows = 16, .max_made = 7});
  const std::vector<RunningSequence*> streams = {stream(10)};
  const std::vector<RunningSequence*> none;
  const auto wanted = [&] {
    drafts.propose(streams, 16);
    return drafts.wanted(0);
  };
  EXPECT_EQ(wanted(), 0) << "what a plain step takes is not known";
  EXPECT_TRUE(drafts.follows_prompts(none)) << "drafts may pay";
  know(1, 1.0);
  EXPECT_EQ(wanted(), 1) << "tried";
  know(2, 1.3);
  know(3, 1.4);
  know(4, 4.0);
  EXPECT_EQ(wanted(), 2);
  EXPECT_EQ(drafts.wanted_behind_prompts(none), 2);
  EXPECT_TRUE(drafts.follows_prompts(none));
  for (int i = 0; i < 30; ++i) odds_.verified(streams[0]->acceptance_trend, 2, 0);
  EXPECT_EQ(wanted(), 0) << "they do not hold";
  EXPECT_EQ(drafts.wanted_behind_prompts(none), 0);
  EXPECT_FALSE(drafts.follows_prompts(none)) << "prompts need not pass through the network";
}

TEST_F(StreamDraftsTest, InDebtWhatWasMadeIsVerifiedAndNothingIsWanted) {
  StreamDrafts drafts = make_without_drafter({.max_drafts = 7, .max_rows = 16, .max_made = 7});
  StreamDrafts proposed = make({.max_drafts = 7, .max_rows = 16});
  const std::vector<RunningSequence*> streams = {stream(10)};
  know(1, 1.0);
  know(2, 1.1);
  ASSERT_TRUE(cost_.may_draft(1));
  while (cost_.may_draft(1)) {
    cost_.add({.num_streams = 1, .num_rows = 2, .num_tokens = 1, .seconds = 1.1});
  }
  streams[0]->made_drafts = {.tokens = {11}, .parents = {-1}};
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), ElementsAre(11));
  EXPECT_EQ(drafts.wanted(0), 0);
  proposed.propose(streams, 16);
  EXPECT_THAT(proposed.of(0), IsEmpty());
}

// The context limit.
TEST_F(StreamDraftsTest, NoneGoesBeyondTheLongestText) {
  StreamDrafts drafts = make();
  // Its prompt has two tokens and one is drawn: at its longest four are computed, one of them now.
  const std::vector<RunningSequence*> streams = {stream(10, /*max_new_tokens=*/3), stream(20, 2)};
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), ElementsAre(11));
  EXPECT_THAT(drafts.of(1), IsEmpty());
}

TEST_F(StreamDraftsTest, AStreamWithADrawInFlightHasNoneAndIsWaitedFor) {
  StreamDrafts drafts = make();
  const std::vector<RunningSequence*> streams = {stream(10), stream(20)};
  EXPECT_FALSE(drafts.waits_for(streams)) << "no draw is in flight";
  streams[0]->draws_in_flight = streams[0]->steps_in_flight = 1;
  streams[0]->num_planned = 3;
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), IsEmpty());
  EXPECT_THAT(drafts.of(1), ElementsAre(21, 22, 23));
  EXPECT_TRUE(drafts.waits_for(streams));
  log_.eager = 0;
  EXPECT_FALSE(drafts.waits_for(streams)) << "nothing would be drafted";
  streams[1]->drafts_in_flight = 2;
  EXPECT_TRUE(drafts.waits_for(streams)) << "its length is not known";
}

TEST_F(StreamDraftsTest, AdaptingDraftsComeWhenAPlainStepIsKnown) {
  StreamDrafts drafts = make({.max_drafts = 3, .max_rows = 16});
  const std::vector<RunningSequence*> streams = {stream(10)};
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), IsEmpty());
  know(1, 1e-3);
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), ElementsAre(11));
  know(2, 1e-3);
  drafts.propose(streams, 16);
  EXPECT_THAT(drafts.of(0), ElementsAre(11, 12, 13));
}

}  // namespace
}  // namespace heddle::scheduler

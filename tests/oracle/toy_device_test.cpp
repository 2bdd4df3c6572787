// SPDX-License-Identifier: Apache-2.0
// The toy device by itself: it carries out a plan in the plan's order, and reports what a plan may
// not contain.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_runner.h"
#include "support/hand_plan.h"

namespace heddle::oracle {
namespace {

using request::PlannedSnapshot;
using request::StepOutput;
using ::testing::Contains;
using testing::FakeRunner;
using testing::HandPlan;
using testing::HandSequence;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::VerifyFault;

using Tokens = std::vector<TokenId>;

constexpr runner::PoolSizes kSizes{
    .num_pages = 8, .page_size = 4, .num_state_slots = 8, .max_sequences = 4, .keeps_hidden = true};
constexpr request::StepLimits kLimits{.max_tokens = 32, .max_draft_rows = 4};

// Sequence 1 of ten tokens in pages 1 to 3 and slot 1.
class ToyDeviceTest : public ::testing::TestWithParam<bool> {
 protected:
  ToyDeviceTest() { device.lazy = GetParam(); }

  HandSequence first() {
    return {.sequence_id = 1,
            .new_tokens = tokens,
            .context_tokens = 0,
            .pages = pages,
            .state_slot = 1,
            .sample = true,
            .sampling = &sampling};
  }

  // Sequence 2 goes on behind the first six tokens of sequence 1, whose state is in slot 2. Its
  // first page is shared, the second a copy.
  HandSequence second() {
    return {.sequence_id = 2,
            .batch_slot = 1,
            .new_tokens = other_end,
            .context_tokens = 6,
            .pages = other_pages,
            .state_slot = 3,
            .sample = true,
            .sampling = &sampling};
  }

  HandPlan second_plan() {
    HandPlan plan;
    plan.sequences = {second()};
    plan.restore_snapshots = {{.from = 2, .to = 3}};
    plan.copy_pages = {{.from = 2, .to = 4}};
    return plan;
  }

  HandPlan first_plan() {
    HandPlan plan;
    plan.sequences = {first()};
    plan.sequences[0].snapshots = snapshots;
    plan.zero_state_slots = {1};
    return plan;
  }

  StepOutput run(const HandPlan& plan) {
    Result<StepOutput> output = device.run(plan.flat());
    EXPECT_TRUE(output.ok()) << output.status().to_string();
    return output.ok() ? std::move(*output) : StepOutput();
  }

  FakeRunner device{kSizes, kLimits};
  SamplingParams sampling{.frequency_penalty = 1};  // output tokens are kept
  Tokens tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Tokens other_end = {50, 51};
  std::vector<int32_t> pages = {1, 2, 3};
  std::vector<int32_t> other_pages = {1, 4};
  std::vector<PlannedSnapshot> snapshots = {{.tokens = 6, .slot = 2},
                                            {.tokens = 10, .slot = 5, .keep_hidden = true}};
};

TEST_P(ToyDeviceTest, ResumesFromASnapshotSharedPagesAndACopiedPage) {
  const StepOutput one = run(first_plan());
  EXPECT_EQ(one.tokens[0].token, FakeRunner::next_token(tokens));
  const StepOutput two = run(second_plan());
  const Tokens all = {0, 1, 2, 3, 4, 5, 50, 51};
  EXPECT_EQ(two.tokens[0].token, FakeRunner::next_token(all));
  EXPECT_THAT(device.complaints(), IsEmpty());
}

TEST_P(ToyDeviceTest, FeedsTheTokenDrawnLastWhileTwoStepsAreInFlight) {
  HandPlan next;
  next.sequences = {first()};
  next.sequences[0].new_tokens = {};
  next.sequences[0].feeds_drawn_token = true;
  next.sequences[0].context_tokens = 10;
  const request::BatchPlan plan = first_plan().flat();
  const request::BatchPlan next_plan = next.flat();
  ASSERT_TRUE(device.submit(plan).ok());
  ASSERT_TRUE(device.submit(next_plan).ok());
  EXPECT_EQ(device.num_in_flight(), 2);
  const TokenId one = device.wait()->tokens[0].token;
  const TokenId two = device.wait()->tokens[0].token;
  tokens.push_back(one);
  EXPECT_EQ(two, FakeRunner::next_token(tokens));
  EXPECT_THAT(device.complaints(), IsEmpty());
}

TEST_P(ToyDeviceTest, LeavesOutWhatEndedBeforeTheStep) {
  const Tokens ending = {FakeRunner::next_token(tokens)};
  run(first_plan());
  HandPlan next;
  next.sequences = {first()};
  next.sequences[0].new_tokens = {};
  next.sequences[0].feeds_drawn_token = true;
  next.sequences[0].context_tokens = 10;
  next.sequences[0].ending_tokens = ending;
  EXPECT_TRUE(run(next).tokens[0].skipped);
  // Its state is after ten tokens as before: another token follows.
  next.sequences[0].feeds_drawn_token = false;
  next.sequences[0].new_tokens = other_end;
  tokens.insert(tokens.end(), other_end.begin(), other_end.end());
  EXPECT_EQ(run(next).tokens[0].token, FakeRunner::next_token(tokens));
  EXPECT_THAT(device.complaints(), IsEmpty());
}

TEST_P(ToyDeviceTest, LeavesOutWhoseDrawFailed) {
  device.sequence_error = [](const request::PlannedSequence&, int64_t) {
    return internal_error("on purpose");
  };
  EXPECT_FALSE(run(first_plan()).tokens[0].error.ok());
  HandPlan next;
  next.sequences = {first()};
  next.sequences[0].new_tokens = {};
  next.sequences[0].feeds_drawn_token = true;
  next.sequences[0].context_tokens = 10;
  EXPECT_TRUE(run(next).tokens[0].skipped);
}

TEST_P(ToyDeviceTest, GoesDownADraftChainAsFarAsItHolds) {
  Tokens truth;
  Tokens all = tokens;
  for (int i = 0; i < 5; ++i) {
    truth.push_back(FakeRunner::next_token(all));
    all.push_back(truth.back());
  }
  const auto run_with = [&](const Tokens& drafts, const Tokens& ending) {
    FakeRunner fresh(kSizes, kLimits);
    fresh.lazy = GetParam();
    HandPlan plan = first_plan();
    plan.sequences[0].snapshots = {};
    EXPECT_TRUE(fresh.run(plan.flat()).ok());
    HandPlan next;
    next.sequences = {first()};
    const std::vector<int32_t> more_pages = {1, 2, 3, 4};
    const std::vector<PlannedSnapshot> inside = {{.tokens = 12, .slot = 5}};
    next.sequences[0].pages = more_pages;
    next.sequences[0].context_tokens = 10;
    next.sequences[0].new_tokens = std::span(truth).first(1);
    next.sequences[0].drafts = drafts;
    next.sequences[0].ending_tokens = ending;
    next.sequences[0].snapshots = inside;
    Tokens drawn;
    const Result<StepOutput> output = fresh.run(next.flat());
    for (const auto& token : output->tokens) drawn.push_back(token.token);
    // It goes on after what was accepted, from its own state and rows.
    Tokens rest = truth;
    rest.resize(drawn.size() + 1);
    HandPlan last = next;
    last.sequences[0].drafts = {};
    last.sequences[0].snapshots = {};
    last.sequences[0].context_tokens = 10 + std::ssize(drawn);
    last.sequences[0].new_tokens = std::span(rest).last(1);
    if (ending.empty()) {
      EXPECT_TRUE(fresh.run(last.flat()).ok());
    }
    EXPECT_THAT(fresh.complaints(), IsEmpty());
    return drawn;
  };
  EXPECT_EQ(run_with({truth[1], truth[2], truth[3]}, {}), Tokens(truth.begin() + 1, truth.end()));
  EXPECT_EQ(run_with({truth[1], truth[2] + 1, truth[3]}, {}), Tokens({truth[1], truth[2]}));
  EXPECT_EQ(run_with({truth[1] + 1, truth[2]}, {}), Tokens({truth[1]}));
  EXPECT_EQ(run_with({truth[1], truth[2], truth[3]}, {truth[2]}), Tokens({truth[1], truth[2]}))
      << "nothing follows an ending token";
}

// The second of two guesses holds, and what follows it.
TEST_P(ToyDeviceTest, GoesDownATreeOfDraftsAndNoticesWhatItPublishedWrong) {
  Tokens truth;
  Tokens all = tokens;
  for (int i = 0; i < 4; ++i) {
    truth.push_back(FakeRunner::next_token(all));
    all.push_back(truth.back());
  }
  const Tokens drafts = {truth[1] + 1, truth[1], truth[2]};
  const std::vector<int32_t> parents = {-1, -1, 1};
  const std::vector<int32_t> more_pages = {1, 2, 3, 4};
  const auto run_with = [&](VerifyFault fault) {
    FakeRunner fresh(kSizes, kLimits);
    fresh.lazy = GetParam();
    fresh.verify_fault = fault;
    HandPlan plan = first_plan();
    plan.sequences[0].snapshots = {};
    EXPECT_TRUE(fresh.run(plan.flat()).ok());
    HandPlan next;
    next.sequences = {first()};
    next.sequences[0].pages = more_pages;
    next.sequences[0].context_tokens = 10;
    next.sequences[0].new_tokens = std::span(truth).first(1);
    next.sequences[0].drafts = drafts;
    next.sequences[0].draft_parents = parents;
    const Result<StepOutput> output = fresh.run(next.flat());
    EXPECT_TRUE(output.ok());
    Tokens drawn;
    for (const auto& token : output->tokens) drawn.push_back(token.token);
    HandPlan last = next;
    last.sequences[0].drafts = {};
    last.sequences[0].draft_parents = {};
    last.sequences[0].context_tokens = 10 + std::ssize(drawn);
    last.sequences[0].new_tokens = std::span(drawn).last(1);
    EXPECT_TRUE(fresh.run(last.flat()).ok());
    EXPECT_EQ(fresh.num_verify_faults() > 0, fault != VerifyFault::kNone);
    if (fault == VerifyFault::kNone) {
      EXPECT_EQ(drawn, Tokens(truth.begin() + 1, truth.end()));
    }
    return fresh.complaints();
  };
  EXPECT_THAT(run_with(VerifyFault::kNone), IsEmpty());
  for (const VerifyFault fault :
       {VerifyFault::kStateOfWrongParent, VerifyFault::kWindowOfWrongParent,
        VerifyFault::kStateOneLate, VerifyFault::kStateOfWrongNode, VerifyFault::kRowsNotMoved}) {
    EXPECT_THAT(run_with(fault), Contains(HasSubstr("sequence 1: state slot 1 has")));
  }
}

TEST_P(ToyDeviceTest, DrawsAgainFromAHiddenVectorThatWasKept) {
  run(first_plan());
  HandPlan repeat;
  repeat.sequences = {second()};
  repeat.sequences[0].new_tokens = {};
  repeat.sequences[0].context_tokens = 10;
  repeat.sequences[0].pages = pages;
  repeat.sequences[0].hidden_slot = 5;
  repeat.restore_snapshots = {{.from = 5, .to = 3}};
  EXPECT_EQ(run(repeat).tokens[0].token, FakeRunner::next_token(tokens));
  EXPECT_THAT(device.complaints(), IsEmpty());
  repeat.sequences[0].hidden_slot = 2;
  repeat.restore_snapshots.clear();
  run(repeat);
  EXPECT_THAT(device.complaints(), Contains(HasSubstr("the hidden vector of slot 2")));
}

// KV rows 6 and 7 are computed already and are not written.
TEST_P(ToyDeviceTest, ReplaysRowsThatAreThereWithoutWritingThem) {
  run(first_plan());
  HandPlan replay;
  replay.sequences = {second()};
  const Tokens end = {6, 7, 90};
  const std::vector<int32_t> shared = {1, 2, 6};
  replay.sequences[0].new_tokens = end;
  replay.sequences[0].kv_tokens = 8;
  replay.sequences[0].pages = shared;
  replay.restore_snapshots = {{.from = 2, .to = 3}};
  const Tokens all = {0, 1, 2, 3, 4, 5, 6, 7, 90};
  EXPECT_EQ(run(replay).tokens[0].token, FakeRunner::next_token(all));
  EXPECT_THAT(device.complaints(), IsEmpty());
}

TEST_P(ToyDeviceTest, NoticesWhatIsWrongWithTheData) {
  struct Case {
    const char* complaint;
    std::function<void(HandPlan&)> damage;
  };

  const Tokens foreign = {6, 70, 90};
  const std::vector<int32_t> swapped = {4, 1};
  const std::vector<int32_t> shared = {1, 2, 6};
  const std::vector<Case> cases = {
      {"state slot 3 has -1 tokens", [](HandPlan& plan) { plan.restore_snapshots.clear(); }},
      {"state slot 3 has 10 tokens", [](HandPlan& plan) { plan.restore_snapshots[0].from = 5; }},
      {"contains nothing", [](HandPlan& plan) { plan.restore_snapshots[0].from = 7; }},
      {"contains nothing", [](HandPlan& plan) { plan.unused_state_slots = {2}; }},
      {"others or in another order", [](HandPlan& plan) { plan.copy_pages.clear(); }},
      {"others or in another order", [&](HandPlan& plan) { plan.sequences[0].pages = swapped; }},
      {"others or in another order", [](HandPlan& plan) { plan.unused_pages = {1}; }},
      {"KV row 7 is taken as computed",
       [&](HandPlan& plan) {
         plan.sequences[0].new_tokens = foreign;
         plan.sequences[0].kv_tokens = 8;
         plan.sequences[0].pages = shared;
         plan.copy_pages.clear();
       }},
      {"feeds token 7 from batch slot 2",
       [](HandPlan& plan) {
         plan.sequences[0].new_tokens = plan.sequences[0].new_tokens.first(1);
         plan.sequences[0].feeds_drawn_token = true;
         plan.sequences[0].batch_slot = 2;
       }},
      {"its output tokens are not its last",
       [&](HandPlan& plan) { plan.sequences[0].output_tokens = foreign; }},
  };
  for (const Case& one : cases) {
    FakeRunner fresh(kSizes, kLimits);
    fresh.lazy = GetParam();
    ASSERT_TRUE(fresh.run(first_plan().flat()).ok());
    HandPlan plan = second_plan();
    one.damage(plan);
    ASSERT_TRUE(fresh.run(plan.flat()).ok());
    EXPECT_THAT(fresh.complaints(), Contains(HasSubstr(one.complaint)));
  }
}

TEST_P(ToyDeviceTest, NoticesWhatAPlanMayNotDo) {
  struct Case {
    const char* complaint;
    std::function<void(HandPlan&)> damage;
  };

  const Tokens long_prompt(33, 1);
  const std::vector<PlannedSnapshot> in_use = {{.tokens = 7, .slot = 2}};
  const std::vector<PlannedSnapshot> outside = {{.tokens = 9, .slot = 7}};
  const std::vector<PlannedSnapshot> early = {{.tokens = 6, .slot = 7}};
  const std::vector<PlannedSnapshot> in_the_middle = {
      {.tokens = 7, .slot = 7, .keep_hidden = true}};
  const std::vector<int32_t> taken = {1, 2};
  const Tokens unsorted = {3, 2};
  const auto add_first = [this](HandPlan& plan) {
    plan.sequences.push_back(first());
    plan.sequences.back().context_tokens = 10;
    plan.sequences.back().new_tokens = other_end;
  };
  const std::vector<Case> cases = {
      {"an empty plan", [](HandPlan& plan) { plan.sequences.clear(); }},
      {"33 rows", [&](HandPlan& plan) { plan.sequences[0].new_tokens = long_prompt; }},
      {"is in it twice", [](HandPlan& plan) { plan.sequences.push_back(plan.sequences[0]); }},
      {"nothing to compute", [](HandPlan& plan) { plan.sequences[0].new_tokens = {}; }},
      {"rows of its context again", [](HandPlan& plan) { plan.sequences[0].kv_tokens = 5; }},
      {"batch slot 4; there are 4", [](HandPlan& plan) { plan.sequences[0].batch_slot = 4; }},
      {"lacks pages", [](HandPlan& plan) { plan.sequences[0].context_tokens = 7; }},
      {"shares page 2",
       [&](HandPlan& plan) {
         plan.sequences[0].pages = taken;
         plan.copy_pages.clear();
         add_first(plan);
         plan.sequences[1].new_tokens = {};
         plan.sequences[1].hidden_slot = 5;
       }},
      {"page 4 is filled by a copy and has 0 users",
       [&](HandPlan& plan) { plan.sequences[0].pages = taken; }},
      {"reads page 1, which is reported unused", [](HandPlan& plan) { plan.unused_pages = {1}; }},
      {"shares a state slot",
       [&](HandPlan& plan) {
         add_first(plan);
         plan.sequences[1].state_slot = 3;
       }},
      {"did not start in batch slot 1",
       [&](HandPlan& plan) {
         add_first(plan);
         plan.sequences[1].batch_slot = 1;
       }},
      {"zeroed at the wrong time", [](HandPlan& plan) { plan.zero_state_slots = {3}; }},
      {"is zeroed twice", [](HandPlan& plan) { plan.zero_state_slots = {6, 6}; }},
      {"filled twice", [](HandPlan& plan) { plan.zero_state_slots = {3}; }},
      {"is filled and copied in one step", [](HandPlan& plan) { plan.zero_state_slots = {2}; }},
      {"state slot 2 is copied and written in one step",
       [&](HandPlan& plan) { plan.sequences[0].snapshots = in_use; }},
      {"a snapshot after 9 tokens", [&](HandPlan& plan) { plan.sequences[0].snapshots = outside; }},
      {"a snapshot after 6 tokens", [&](HandPlan& plan) { plan.sequences[0].snapshots = early; }},
      {"cannot keep a hidden vector",
       [&](HandPlan& plan) { plan.sequences[0].snapshots = in_the_middle; }},
      {"filled for no sequence", [](HandPlan& plan) { plan.restore_snapshots[0].to = 6; }},
      {"unsorted ending tokens",
       [&](HandPlan& plan) { plan.sequences[0].ending_tokens = unsorted; }},
      {"hidden slot that is written",
       [&](HandPlan& plan) {
         add_first(plan);
         plan.sequences[1].new_tokens = {};
         plan.sequences[1].hidden_slot = 7;
         plan.sequences[0].snapshots = {&in_the_middle[0], 1};
       }},
  };
  for (const Case& one : cases) {
    FakeRunner fresh(kSizes, kLimits);
    fresh.lazy = GetParam();
    ASSERT_TRUE(fresh.run(first_plan().flat()).ok());
    HandPlan plan = second_plan();
    one.damage(plan);
    (void)fresh.run(plan.flat());
    EXPECT_THAT(fresh.complaints(), Contains(HasSubstr(one.complaint)));
  }
}

// Sequence 1 ended; its state is saved, its working slot starts anew, and sequence 3 goes on
// behind it, all in one step.
HandPlan saving_plan(const HandSequence& behind, const HandSequence& anew) {
  HandPlan plan;
  plan.save_snapshots = {{.from = 1, .to = 1}};
  plan.unused_state_slots = {1};
  plan.zero_state_slots = {1};
  plan.restore_snapshots = {{.from = 1, .to = 3}};
  plan.copy_pages = {{.from = 3, .to = 4}};
  plan.sequences = {behind, anew};
  return plan;
}

TEST_P(ToyDeviceTest, SavesIntoSlotsOfTheirOwn) {
  runner::PoolSizes sizes = kSizes;
  sizes.num_snapshot_slots = 6;
  const std::vector<int32_t> behind_pages = {1, 2, 4}, new_pages = {5, 6, 7};
  HandSequence behind = second();
  behind.context_tokens = 10;
  behind.pages = behind_pages;
  HandSequence anew = first();
  anew.sequence_id = 3;
  anew.batch_slot = 2;
  anew.pages = new_pages;
  const HandPlan good = saving_plan(behind, anew);
  FakeRunner apart(sizes, kLimits);
  apart.lazy = GetParam();
  ASSERT_TRUE(apart.run(first_plan().flat()).ok());
  const Result<StepOutput> output = apart.run(good.flat());
  ASSERT_TRUE(output.ok());
  Tokens all = tokens;
  all.insert(all.end(), other_end.begin(), other_end.end());
  EXPECT_EQ(output->tokens[0].token, FakeRunner::next_token(all));
  EXPECT_EQ(output->tokens[1].token, FakeRunner::next_token(tokens));
  EXPECT_THAT(apart.complaints(), IsEmpty());

  struct Case {
    const char* complaint;
    std::function<void(HandPlan&)> damage;
  };

  const std::vector<PlannedSnapshot> in_snapshot = {{.tokens = 10, .slot = 1}};
  const std::vector<PlannedSnapshot> outside = {{.tokens = 10, .slot = 7}};
  const std::vector<Case> cases = {
      {"state slot 1 is copied and contains nothing",
       [](HandPlan& plan) { plan.save_snapshots.clear(); }},
      {"state slot 3 has 6 tokens", [](HandPlan& plan) { plan.restore_snapshots[0].from = 2; }},
      {"state slot 6 is saved and contains nothing",
       [](HandPlan& plan) { plan.save_snapshots[0].from = 6; }},
      {"state slot 1 is saved to 7", [](HandPlan& plan) { plan.save_snapshots[0].to = 7; }},
      {"snapshot slot 1 is filled twice",
       [](HandPlan& plan) { plan.save_snapshots.push_back({.from = 2, .to = 1}); }},
      {"an unused snapshot slot is out of range",
       [](HandPlan& plan) { plan.unused_snapshot_slots = {7}; }},
      {"a snapshot in slot 1, which is in use",
       [&](HandPlan& plan) { plan.sequences[1].snapshots = in_snapshot; }},
      {"a snapshot slot out of range",
       [&](HandPlan& plan) { plan.sequences[1].snapshots = outside; }},
  };
  for (const Case& one : cases) {
    FakeRunner fresh(sizes, kLimits);
    fresh.lazy = GetParam();
    ASSERT_TRUE(fresh.run(first_plan().flat()).ok());
    HandPlan plan = good;
    one.damage(plan);
    (void)fresh.run(plan.flat());
    EXPECT_THAT(fresh.complaints(), Contains(HasSubstr(one.complaint)));
  }
  (void)device.run(good.flat());
  EXPECT_THAT(device.complaints(), Contains(HasSubstr("there are no snapshot slots apart")));
}

TEST_P(ToyDeviceTest, RefusesPlansThatNoDeviceCouldCarryOut) {
  HandPlan plan = first_plan();
  plan.sequences[0].state_slot = 9;
  EXPECT_FALSE(device.run(plan.flat()).ok());
  EXPECT_THAT(device.complaints(), Contains(HasSubstr("state slot out of range")));
}

TEST_P(ToyDeviceTest, NoticesMovesOutOfOrder) {
  run(first_plan());
  request::BatchPlan plan = second_plan().flat();
  std::ranges::reverse(plan.moves);
  ASSERT_TRUE(device.run(plan).ok());
  EXPECT_THAT(device.complaints(), Contains(HasSubstr("moves out of order")));
}

TEST_P(ToyDeviceTest, NoticesAPlanThatChangesInFlight) {
  request::BatchPlan plan = first_plan().flat();
  ASSERT_TRUE(device.submit(plan).ok());
  plan.starts[0].seed = 99;
  ASSERT_TRUE(device.wait().ok());
  EXPECT_THAT(device.complaints(), Contains(HasSubstr("changed while it was in flight")));
}

TEST_P(ToyDeviceTest, NoticesWhenMoreMemoryIsInUseThanThereIs) {
  runner::PoolSizes sizes = kSizes;
  sizes.page_bytes = 10;
  sizes.state_slot_bytes = 100;
  sizes.shared_bytes = 330;  // three slots, three pages
  FakeRunner small(sizes, kLimits);
  small.lazy = GetParam();
  ASSERT_TRUE(small.run(first_plan().flat()).ok());
  EXPECT_THAT(small.complaints(), IsEmpty());
  HandPlan plan = second_plan();
  plan.unused_state_slots = {5};
  plan.unused_pages = {3};
  ASSERT_TRUE(small.run(plan.flat()).ok());
  EXPECT_THAT(small.complaints(), IsEmpty());
  plan = first_plan();
  plan.sequences[0].snapshots = {};
  plan.sequences[0].state_slot = 6;
  plan.zero_state_slots = {6};
  ASSERT_TRUE(small.run(plan.flat()).ok());
  EXPECT_THAT(small.complaints(), Contains(HasSubstr("440 bytes are in use, there are 330")));
}

INSTANTIATE_TEST_SUITE_P(EagerAndLazy, ToyDeviceTest, ::testing::Bool(),
                         [](const auto& lazy) { return lazy.param ? "Lazy" : "Eager"; });

}  // namespace
}  // namespace heddle::oracle

// SPDX-License-Identifier: Apache-2.0
// The runner with the real model in exact mode: however a sequence gets to a token (plainly, from a
// snapshot, on shared pages, fed by the device, from a kept vector), tokens and logprobs are
// the same bits.
#include "runner/load/model_runner.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/count_prefill_flops.h"
#include "models/registry.h"
#include "support/allocation_count.h"
#include "support/hand_plan.h"
#include "support/test_data.h"

namespace heddle::runner {
namespace {

using request::PlannedSnapshot;
using request::SampledToken;
using request::StepOutput;
using testing::HandPlan;
using testing::HandSequence;
using ::testing::HasSubstr;

constexpr int32_t kPage = 16;
constexpr int64_t kPromptTokens = 100;  // ends within a page
constexpr int64_t kNewTokens = 8;
constexpr int32_t kPagesEach = 8;

std::vector<TokenId> make_prompt(int64_t seed) {
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < kPromptTokens; ++i) {
    prompt.push_back(static_cast<TokenId>((i * 7919 + seed * 104729 + 11) % 1400));
  }
  return prompt;
}

// The drawn tokens and logprobs, to the bit.
struct Drawn {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;

  void add(const SampledToken& sampled) {
    EXPECT_TRUE(sampled.error.ok()) << sampled.error.to_string();
    EXPECT_FALSE(sampled.skipped);
    tokens.push_back(sampled.token);
    logprobs.push_back(sampled.logprob);
  }

  friend bool operator==(const Drawn& a, const Drawn& b) {
    const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
      return x.token == y.token && x.logprob == y.logprob && x.top == y.top;
    };
    return a.tokens == b.tokens && std::ranges::equal(a.logprobs, b.logprobs, same);
  }
};

// A sequence with pages, a slot and a batch slot of its own. Number n has slot n + 1, batch slot n
// and pages from n * kPagesEach + 1 on.
struct TestSequence {
  explicit TestSequence(int32_t number, std::vector<TokenId> prompt_tokens = make_prompt(1))
      : batch_slot(number), slot(number + 1), prompt(std::move(prompt_tokens)), pages(kPagesEach) {
    std::iota(pages.begin(), pages.end(), number * kPagesEach + 1);
    params.temperature = 0.8f;
    params.repetition_penalty = 1.2f;
    params.frequency_penalty = 0.25f;
  }

  // The next step of it: `tokens` after `context` tokens.
  [[nodiscard]] HandSequence plan(int64_t context, std::span<const TokenId> tokens) const {
    return {.sequence_id = 100 + batch_slot,
            .batch_slot = batch_slot,
            .new_tokens = tokens,
            .context_tokens = context,
            .pages = pages,
            .state_slot = slot,
            .sample = true,
            .sampling = &params,
            .seed = 12345,
            .output_tokens = drawn.tokens,
            .return_logprobs = true,
            .top_logprobs = 3};
  }

  [[nodiscard]] HandSequence plan_prompt(int64_t context = 0) const {
    return plan(context, std::span(prompt).subspan(static_cast<size_t>(context)));
  }

  // One token: the one drawn last, from the host.
  [[nodiscard]] HandSequence plan_decode() const {
    const auto count = std::ssize(drawn.tokens);
    return plan(std::ssize(prompt) + count - 1, std::span(drawn.tokens).last(1));
  }

  int32_t batch_slot;
  int32_t slot;
  std::vector<TokenId> prompt;
  std::vector<int32_t> pages;
  SamplingParams params;
  Drawn drawn;
};

class ModelRunnerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                          .exact = true,
                          .num_threads = 2,
                          .context_length = kPagesEach * kPage,
                          .max_running_requests = 4,
                          .chunked_prefill_tokens = 256,
                          .page_size = kPage,
                          .speculative = {.algorithm = DraftAlgorithm::kNone}};
    auto loaded = load_model(options);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    model_ = new LoadedModel(std::move(*loaded));

    TestSequence plain(0);
    HandPlan plan;
    plan.zero_state_slots = {plain.slot};
    plan.sequences = {plain.plan_prompt()};
    plain.drawn.add(run(plan).at(0));
    decode(plain, kNewTokens - 1);
    plain_ = new Drawn(plain.drawn);
  }

  static void TearDownTestSuite() {
    delete model_;
    delete plain_;
  }

  static Runner& runner() { return *model_->runner; }

  static std::vector<SampledToken> run(const HandPlan& plan) {
    Result<StepOutput> output = runner().run(plan.flat());
    EXPECT_TRUE(output.ok()) << output.status().to_string();
    if (!output.ok()) return {};
    const std::vector<SampledToken> tokens = output->tokens;
    runner().recycle(std::move(*output));
    return tokens;
  }

  // Plain decoding, each token from the host.
  static void decode(TestSequence& sequence, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      HandPlan plan;
      plan.sequences = {sequence.plan_decode()};
      sequence.drawn.add(run(plan).at(0));
    }
  }

  // Number 0 after its prompt, with the snapshots taken.
  static TestSequence lead(std::span<const PlannedSnapshot> snapshots) {
    TestSequence leader(0);
    HandPlan plan;
    plan.zero_state_slots = {leader.slot};
    plan.sequences = {leader.plan_prompt()};
    plan.sequences[0].snapshots = snapshots;
    leader.drawn.add(run(plan).at(0));
    return leader;
  }

  // The follower takes the leader's full pages before `tokens` and copies the one it goes on in.
  static void share_pages(const TestSequence& leader, int64_t tokens, TestSequence& follower,
                          HandPlan& plan) {
    const auto full = static_cast<size_t>(tokens / kPage);
    std::copy_n(leader.pages.begin(), full, follower.pages.begin());
    if (tokens % kPage != 0) {
      plan.copy_pages = {{.from = leader.pages[full], .to = follower.pages[full]}};
    }
  }

  static LoadedModel* model_;
  static Drawn* plain_;  // the reference: one sequence alone, fed by the host
};

LoadedModel* ModelRunnerTest::model_ = nullptr;
Drawn* ModelRunnerTest::plain_ = nullptr;

TEST_F(ModelRunnerTest, SaysWhatItsPoolsShare) {
  const PoolSizes& sizes = runner().pool_sizes();
  EXPECT_TRUE(sizes.keeps_hidden);
  EXPECT_EQ(sizes.page_bytes, 2 * 2 * kPage * 2 * 128 * 4);
  EXPECT_EQ(sizes.shared_bytes, model_->plan.shared_pool_bytes);
  EXPECT_GT(sizes.shared_bytes, 0);
  EXPECT_LE(sizes.num_pages * sizes.page_bytes, sizes.shared_bytes);
  EXPECT_LE(sizes.num_state_slots * sizes.state_slot_bytes, sizes.shared_bytes);
  EXPECT_GE(sizes.num_pages, 4 * kPagesEach);
  EXPECT_GE(sizes.num_state_slots, 16) << "the tests' slots";
  const auto config = models::load_config(testing::repository_path("models/heddle-tiny")).value();
  const request::PrefillFlops flops =
      models::count_prefill_flops(config, *models::create_model(config));
  EXPECT_EQ(sizes.flops.per_token, flops.per_token);
  EXPECT_EQ(sizes.flops.per_pair, flops.per_pair);
}

TEST_F(ModelRunnerTest, ResumesFromASnapshotOnSharedPages) {
  // The first token, within a page, at the end of a page, at the end of a chunk, the last token.
  const std::vector<PlannedSnapshot> snapshots = {{.tokens = 1, .slot = 11},
                                                  {.tokens = 48, .slot = 12},
                                                  {.tokens = 50, .slot = 13},
                                                  {.tokens = 64, .slot = 14},
                                                  {.tokens = kPromptTokens, .slot = 15}};
  TestSequence leader = lead(snapshots);
  for (const PlannedSnapshot& snapshot : snapshots) {
    SCOPED_TRACE(fmt::format("at {}", snapshot.tokens));
    TestSequence follower(1);
    HandPlan plan;
    plan.restore_snapshots = {{.from = snapshot.slot, .to = follower.slot}};
    share_pages(leader, snapshot.tokens, follower, plan);
    if (snapshot.tokens == kPromptTokens) {  // goes on where the leader drew
      follower.drawn = {{plain_->tokens[0]}, {plain_->logprobs[0]}};
      plan.sequences = {follower.plan_decode()};
    } else {
      plan.sequences = {follower.plan_prompt(snapshot.tokens)};
    }
    follower.drawn.add(run(plan).at(0));
    decode(follower, kNewTokens - std::ssize(follower.drawn.tokens));
    EXPECT_EQ(follower.drawn, *plain_);
  }
  decode(leader, kNewTokens - 1);
  EXPECT_EQ(leader.drawn, *plain_) << "the leader, whose pages the others read";
}

TEST_F(ModelRunnerTest, ReplaysBehindASnapshotOnKvThatIsThere) {
  const std::vector<PlannedSnapshot> snapshots = {{.tokens = 40, .slot = 11}};
  TestSequence leader = lead(snapshots);
  TestSequence follower(1);
  HandPlan plan;
  plan.restore_snapshots = {{.from = 11, .to = follower.slot}};
  share_pages(leader, 96, follower, plan);
  plan.sequences = {follower.plan_prompt(40)};
  plan.sequences[0].kv_tokens = 96;
  follower.drawn.add(run(plan).at(0));
  decode(follower, kNewTokens - 1);
  EXPECT_EQ(follower.drawn, *plain_);
  decode(leader, kNewTokens - 1);
  EXPECT_EQ(leader.drawn, *plain_);
}

TEST_F(ModelRunnerTest, FeedsWhatItDrewWithTwoStepsInFlight) {
  TestSequence fed(0);
  TestSequence other(1, make_prompt(2));  // company, fed by the host in the reference below
  HandPlan first;
  first.zero_state_slots = {fed.slot, other.slot};
  first.sequences = {fed.plan_prompt(), other.plan_prompt()};
  std::deque<request::BatchPlan> plans = {first.flat()};
  // The host knows of step n only after step n + 1 has been submitted: its output_tokens are one
  // behind the fed token.
  std::deque<std::vector<TokenId>> known;
  ASSERT_TRUE(runner().submit(plans.back()).ok());
  Drawn drawn[2];
  for (int64_t step = 1; step <= kNewTokens; ++step) {
    if (step < kNewTokens) {
      HandPlan plan;
      for (const TestSequence* sequence : {&fed, &other}) {
        known.push_back(drawn[sequence->batch_slot].tokens);
        HandSequence planned = sequence->plan(kPromptTokens + step - 1, {});
        planned.feeds_drawn_token = true;
        planned.output_tokens = known.back();
        plan.sequences.push_back(planned);
      }
      ASSERT_TRUE(runner().submit(plans.emplace_back(plan.flat())).ok());
    }
    Result<StepOutput> output = runner().wait();
    ASSERT_TRUE(output.ok()) << output.status().to_string();
    ASSERT_EQ(output->tokens.size(), 2u);
    for (size_t i = 0; i < 2; ++i) drawn[i].add(output->tokens[i]);
    runner().recycle(std::move(*output));
  }
  EXPECT_EQ(drawn[0], *plain_);

  HandPlan alone;
  alone.zero_state_slots = {other.slot};
  alone.sequences = {other.plan_prompt()};
  other.drawn.add(run(alone).at(0));
  decode(other, kNewTokens - 1);
  EXPECT_EQ(drawn[1], other.drawn);
}

TEST_F(ModelRunnerTest, FeedsADrawnTokenBehindTokensOfTheHost) {
  // Two tokens in one step, one from the host, then a drawn one: another sequence in the same batch
  // slot drew it.
  TestSequence drawer = lead({});
  decode(drawer, 1);
  TestSequence fed(1);
  HandPlan prompt;
  prompt.zero_state_slots = {fed.slot};
  prompt.sequences = {fed.plan_prompt()};
  prompt.sequences[0].sample = false;
  EXPECT_THAT(run(prompt), ::testing::IsEmpty());
  HandPlan plan;
  fed.batch_slot = drawer.batch_slot;
  fed.drawn = {{plain_->tokens[0]}, {plain_->logprobs[0]}};
  plan.sequences = {fed.plan(kPromptTokens, fed.drawn.tokens)};
  plan.sequences[0].feeds_drawn_token = true;
  EXPECT_EQ(run(plan).at(0).token, plain_->tokens[2]);
}

TEST_F(ModelRunnerTest, LeavesAnEndedSequenceAsItIs) {
  TestSequence ended = lead({});
  TestSequence other(1);
  HandPlan prompt;
  prompt.zero_state_slots = {other.slot};
  prompt.sequences = {other.plan_prompt()};
  other.drawn.add(run(prompt).at(0));

  std::vector<TokenId> ending = {plain_->tokens[1], 1500};
  std::ranges::sort(ending);
  const auto fed_step = [&](size_t known, bool with_other) {
    HandPlan plan;
    plan.sequences = {ended.plan(kPromptTokens + static_cast<int64_t>(known) - 1, {})};
    plan.sequences[0].feeds_drawn_token = true;
    plan.sequences[0].ending_tokens = ending;
    plan.sequences[0].output_tokens = std::span(ended.drawn.tokens).first(known - 1);
    if (with_other) plan.sequences.push_back(other.plan_decode());
    return run(plan);
  };
  std::vector<SampledToken> tokens = fed_step(1, true);
  ASSERT_EQ(tokens.size(), 2u);
  ended.drawn.add(tokens[0]);
  other.drawn.add(tokens[1]);
  for (const bool with_other : {true, false, true}) {
    tokens = fed_step(2, with_other);
    ASSERT_EQ(tokens.size(), with_other ? 2u : 1u);
    EXPECT_TRUE(tokens[0].skipped);
    EXPECT_EQ(tokens[0].sequence_id, 100);
    EXPECT_TRUE(tokens[0].error.ok());
    if (with_other) other.drawn.add(tokens[1]);
  }
  // State and pages are where the ending token found them: from the host it goes on as ever.
  decode(ended, kNewTokens - 2);
  EXPECT_EQ(ended.drawn, *plain_);
  decode(other, kNewTokens - 4);
  EXPECT_EQ(other.drawn, *plain_);
}

TEST_F(ModelRunnerTest, SkipsWhatFollowsAFailedDraw) {
  TestSequence sequence = lead({});
  std::vector<TokenId> all(static_cast<size_t>(model_->info.vocab_size));
  std::iota(all.begin(), all.end(), 0);
  HandPlan masked;
  masked.sequences = {sequence.plan_decode()};
  masked.sequences[0].forbidden_tokens = all;
  HandPlan next;
  next.sequences = {sequence.plan(kPromptTokens + 1, {})};
  next.sequences[0].feeds_drawn_token = true;
  const request::BatchPlan plans[] = {masked.flat(), next.flat()};
  for (const request::BatchPlan& plan : plans) ASSERT_TRUE(runner().submit(plan).ok());
  Result<StepOutput> failed = runner().wait();
  ASSERT_TRUE(failed.ok());
  EXPECT_THAT(failed->tokens.at(0).error.message(), HasSubstr("every token is masked"));
  EXPECT_FALSE(failed->tokens.at(0).skipped);
  Result<StepOutput> skipped = runner().wait();
  ASSERT_TRUE(skipped.ok());
  EXPECT_TRUE(skipped->tokens.at(0).skipped);
  EXPECT_TRUE(skipped->tokens.at(0).error.ok());
}

TEST_F(ModelRunnerTest, DrawsAgainFromAKeptVector) {
  const std::vector<PlannedSnapshot> snapshots = {
      {.tokens = kPromptTokens, .slot = 11, .keep_hidden = true}};
  TestSequence leader = lead(snapshots);
  decode(leader, kNewTokens - 1);
  EXPECT_EQ(leader.drawn, *plain_);

  const auto repeat = [&](TestSequence& follower, HandPlan& plan) {
    plan.restore_snapshots.push_back({.from = 11, .to = follower.slot});
    share_pages(leader, kPromptTokens, follower, plan);
    HandSequence& planned = plan.sequences.emplace_back(follower.plan(kPromptTokens, {}));
    planned.hidden_slot = 11;
  };
  TestSequence repeated(1);
  HandPlan alone;
  repeat(repeated, alone);
  repeated.drawn.add(run(alone).at(0));
  decode(repeated, kNewTokens - 1);
  EXPECT_EQ(repeated.drawn, *plain_) << "a step without a forward pass";

  // Beside a prompt and another repeat that draws something else.
  TestSequence computed(1, make_prompt(2));
  TestSequence again(2);
  TestSequence third(3);
  HandPlan mixed;
  repeat(again, mixed);
  mixed.zero_state_slots = {computed.slot};
  mixed.sequences.push_back(computed.plan_prompt());
  mixed.sequences.push_back(third.plan(kPromptTokens, {}));
  mixed.sequences.back().hidden_slot = 11;
  mixed.sequences.back().choice_index = 1;
  const std::vector<SampledToken> tokens = run(mixed);
  ASSERT_EQ(tokens.size(), 3u);
  again.drawn.add(tokens[0]);
  EXPECT_EQ(again.drawn.tokens[0], plain_->tokens[0]);
  EXPECT_EQ(again.drawn.logprobs[0].logprob, plain_->logprobs[0].logprob);
  EXPECT_EQ(tokens[2].logprob.top, plain_->logprobs[0].top) << "the same logits, another draw";
  computed.drawn.add(tokens[1]);
  decode(again, kNewTokens - 1);
  EXPECT_EQ(again.drawn, *plain_);

  TestSequence check(1, make_prompt(2));
  HandPlan prompt;
  prompt.zero_state_slots = {check.slot};
  prompt.sequences = {check.plan_prompt()};
  check.drawn.add(run(prompt).at(0));
  EXPECT_EQ(check.drawn, computed.drawn);
}

TEST_F(ModelRunnerTest, KeepsTheVectorOfAPromptThatDrawsNothingYet) {
  TestSequence leader(0);
  HandPlan plan;
  plan.zero_state_slots = {leader.slot};
  plan.sequences = {leader.plan_prompt()};
  const std::vector<PlannedSnapshot> snapshots = {
      {.tokens = kPromptTokens, .slot = 12, .keep_hidden = true}};
  plan.sequences[0].snapshots = snapshots;
  plan.sequences[0].sample = false;
  EXPECT_THAT(run(plan), ::testing::IsEmpty());
  HandPlan repeat;
  repeat.sequences = {leader.plan(kPromptTokens, {})};
  repeat.sequences[0].hidden_slot = 12;
  leader.drawn.add(run(repeat).at(0));
  decode(leader, kNewTokens - 1);
  EXPECT_EQ(leader.drawn, *plain_);
}

TEST_F(ModelRunnerTest, GivesBackUnusedMemoryAndOnlyThat) {
  const std::vector<PlannedSnapshot> snapshots = {{.tokens = 50, .slot = 11},
                                                  {.tokens = 64, .slot = 12}};
  TestSequence leader = lead(snapshots);
  TestSequence gone(2);
  HandPlan other;
  other.zero_state_slots = {gone.slot};
  other.sequences = {gone.plan_prompt()};
  EXPECT_EQ(run(other).at(0).token, plain_->tokens[0]);
  // Pages and slots of a sequence that ended, and of a snapshot: one of them starts anew at once.
  TestSequence follower(1);
  TestSequence fresh(2);
  HandPlan plan;
  plan.unused_pages = gone.pages;
  plan.unused_state_slots = {gone.slot, 12};
  plan.zero_state_slots = {fresh.slot};
  plan.restore_snapshots = {{.from = 11, .to = follower.slot}};
  share_pages(leader, 50, follower, plan);
  plan.sequences = {follower.plan_prompt(50), fresh.plan_prompt(), leader.plan_decode()};
  const std::vector<SampledToken> tokens = run(plan);
  ASSERT_EQ(tokens.size(), 3u);
  follower.drawn.add(tokens[0]);
  fresh.drawn.add(tokens[1]);
  leader.drawn.add(tokens[2]);
  decode(follower, kNewTokens - 1);
  decode(fresh, kNewTokens - 1);
  decode(leader, kNewTokens - 2);
  EXPECT_EQ(follower.drawn, *plain_);
  EXPECT_EQ(fresh.drawn, *plain_);
  EXPECT_EQ(leader.drawn, *plain_);
}

TEST_F(ModelRunnerTest, FailsAStepWhosePlanCannotBe) {
  const TestSequence sequence(0);
  const auto message = [&](auto change) {
    HandPlan plan;
    plan.sequences = {sequence.plan_prompt()};
    change(plan.sequences[0]);
    return runner().run(plan.flat()).status().message();
  };
  EXPECT_EQ(message([](HandSequence& s) { s.batch_slot = 4; }), "batch slot 4; there are 4");
  EXPECT_THAT(message([](HandSequence& s) { s.hidden_slot = 3; }),
              HasSubstr("new tokens beside a hidden vector"));
  EXPECT_THAT(message([](HandSequence& s) { s.new_tokens = {}; }), HasSubstr("no new tokens"));
  EXPECT_THAT(message([](HandSequence& s) { s.top_logprobs = 21; }),
              HasSubstr("21 alternatives, at most 20"));
  const std::vector<PlannedSnapshot> early = {{.tokens = 5, .slot = 11, .keep_hidden = true}};
  EXPECT_THAT(message([&](HandSequence& s) { s.snapshots = early; }),
              HasSubstr("hidden vector of token 5"));
  HandPlan fed;
  fed.sequences = {sequence.plan(1, {})};
  fed.sequences[0].feeds_drawn_token = true;
  EXPECT_TRUE(run(fed).at(0).skipped) << "nothing that was drawn before an error is fed";
}

// The one place that looks at ids; ops rely on it.
TEST_F(ModelRunnerTest, RefusesIdsOutsideThePoolsAndTheVocabulary) {
  const TestSequence sequence(0);
  const auto message = [&](auto change) {
    HandPlan plan;
    plan.sequences = {sequence.plan_prompt()};
    change(plan.sequences[0]);
    return runner().run(plan.flat()).status().message();
  };
  const std::vector<int32_t> pages(kPagesEach, 1'000'000);
  EXPECT_THAT(message([&](HandSequence& s) { s.pages = pages; }),
              HasSubstr("sequence 0 names page 1000000 in page table 0, the pool has"));
  EXPECT_THAT(message([](HandSequence& s) { s.state_slot = 1'000'000; }),
              HasSubstr("sequence 0 has state slot 1000000, the pool has"));
  const std::vector<PlannedSnapshot> far = {{.tokens = 3, .slot = 1'000'000}};
  EXPECT_THAT(message([&](HandSequence& s) { s.snapshots = far; }),
              HasSubstr("the snapshot of sequence 0 after 3 tokens in slot 1000000 does not fit"));
  for (const TokenId id : {TokenId{-1}, TokenId{1 << 30}}) {
    const std::vector<TokenId> prompt = {1, id};
    EXPECT_THAT(message([&](HandSequence& s) { s.new_tokens = prompt; }),
                HasSubstr(fmt::format("row 1 has token id {}, the vocabulary has", id)));
  }
}

TEST_F(ModelRunnerTest, AStepAllocatesNothingOnceWarm) {
  if (!testing::AllocationCount::supported()) GTEST_SKIP() << "a sanitizer owns operator new";
  TestSequence sequence = lead({});
  std::vector<request::BatchPlan> plans(20);
  for (size_t i = 0; i < plans.size(); ++i) {
    HandSequence planned = sequence.plan(kPromptTokens + static_cast<int64_t>(i), {});
    planned.feeds_drawn_token = true;
    planned.output_tokens = {};
    planned.return_logprobs = false;
    HandPlan plan;
    plan.sequences = {planned};
    plans[i] = plan.flat();
  }
  const auto steps = [&](size_t first, size_t end) {
    ASSERT_TRUE(runner().submit(plans[first]).ok());
    for (size_t i = first; i < end; ++i) {
      if (i + 1 < end) {
        ASSERT_TRUE(runner().submit(plans[i + 1]).ok());
      }
      Result<StepOutput> output = runner().wait();
      ASSERT_TRUE(output.ok());
      ASSERT_FALSE(output->tokens.at(0).skipped);
      runner().recycle(std::move(*output));
    }
  };
  steps(0, 5);
  const testing::AllocationCount allocations;
  steps(5, 20);
  EXPECT_EQ(allocations.count(), 0);
}

}  // namespace
}  // namespace heddle::runner

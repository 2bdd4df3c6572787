// SPDX-License-Identifier: Apache-2.0
#include "engine/delivery.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/log.h"
#include "engine/scheduler_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DeliveryTest : public ::testing::Test {
 protected:
  DeliveryTest() { set_log_level(LogLevel::kOff); }

  // Goes through the inbox to the delivery. Events are recorded unless there is a callback.
  request::Sequence& add(const std::string& id, int64_t max_new_tokens = 4,
                         Engine::EventCallback on_event = nullptr) {
    if (!on_event) on_event = [this](const RequestEvent& event) { events_.push_back(event); };
    Arrivals arrivals;
    arrivals.push_back(live_request(id, std::move(on_event), max_new_tokens));
    EXPECT_TRUE(inbox_.submit(std::move(arrivals)).ok());
    Mail mail;
    inbox_.take(mail);
    return delivery_.add(std::move(mail.arrivals.at(0)));
  }

  // A step in which these sequences draw a token, which the scheduler has counted.
  void step(const std::vector<request::Sequence*>& sequences) {
    std::vector<int64_t> ids;
    for (const request::Sequence* sequence : sequences) ids.push_back(sequence->id);
    const request::BatchPlan plan = plan_for(ids);
    (void)delivery_.start(plan);
    request::StepOutput output = output_for(plan);
    for (request::Sequence* sequence : sequences) {
      sequence->num_computed = sequence->num_tokens();
      sequence->tokens.push_back(static_cast<TokenId>(sequence->id));
    }
    delivery_.deliver(plan, output, clock_.now_seconds());
  }

  ManualClock clock_;
  RecordingScheduler scheduler_;
  Inbox inbox_{clock_, {.max_queued = 100, .num_batch_slots = 8}, 1};
  Delivery delivery_{scheduler_, inbox_, nullptr, clock_, /*context_length=*/100};
  std::vector<RequestEvent> events_;
};

TEST_F(DeliveryTest, SendsAnEventPerTokenWithTotalsAndTimes) {
  clock_.advance_seconds(1);
  request::Sequence& sequence = add("a", 2);
  clock_.advance_seconds(1);
  step({&sequence});
  clock_.advance_seconds(1);
  step({&sequence});
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_THAT(events_[0].tokens, ElementsAre(1));
  EXPECT_FALSE(events_[0].finish);
  EXPECT_EQ(events_[0].prompt_tokens, 3);
  EXPECT_EQ(events_[1].completion_tokens, 2);
  EXPECT_EQ(events_[1].queue_seconds, 1);
  EXPECT_EQ(events_[1].first_token_seconds, 1);
  EXPECT_EQ(events_[1].elapsed_seconds, 2);
  ASSERT_TRUE(events_[1].finish);
  EXPECT_EQ(events_[1].finish->reason, FinishReason::kLength);
  EXPECT_THAT(scheduler_.calls, ElementsAre("release 1 done"));
  EXPECT_TRUE(delivery_.empty());
  EXPECT_EQ(delivery_.take_num_ended(), 1);
  EXPECT_EQ(delivery_.num_ended(), 0);
  EXPECT_EQ(delivery_.prompt_tokens(), 3);
  EXPECT_EQ(delivery_.output_tokens(), 2);
}

TEST_F(DeliveryTest, CountsTheSequencesOfAStep) {
  request::Sequence& first = add("a");
  step({&first});
  request::Sequence& second = add("b");
  second.cache_report.reused_tokens = 1;
  request::BatchPlan plan = plan_for({first.id, second.id});
  plan.sequences[0].context_tokens = 3;
  plan.sequences[0].new_tokens = plan.add_tokens(std::span(first.tokens).subspan(3));
  plan.sequences[1].new_tokens = plan.add_tokens(std::span(second.tokens).subspan(1));
  const StepFacts facts = delivery_.start(plan);
  EXPECT_EQ(facts.decode_sequences, 1);
  EXPECT_EQ(facts.decode_context, 3);
  EXPECT_EQ(facts.new_sequences, 1);
  EXPECT_EQ(facts.prefill_tokens, 2);
  EXPECT_EQ(facts.cached_tokens, 1);
  EXPECT_EQ(delivery_.start(plan).new_sequences, 0) << "it has started";
}

TEST_F(DeliveryTest, RequestsWithATokenAreStreamsUntilTheyEnd) {
  request::Sequence& first = add("a", 2);
  request::Sequence& second = add("b", 3);
  EXPECT_EQ(delivery_.num_streams(), 0);
  step({&first, &second});
  EXPECT_EQ(delivery_.num_streams(), 2);
  step({&first, &second});
  EXPECT_EQ(delivery_.num_streams(), 1);
  add("c");
  delivery_.finish_all({.reason = FinishReason::kAbort});
  EXPECT_EQ(delivery_.num_streams(), 0) << "one of them never was a stream";
}

TEST_F(DeliveryTest, ACallbackMayMoveOutOfItsEvent) {
  std::vector<RequestEvent> kept;
  request::Sequence& sequence =
      add("a", 2, [&kept](RequestEvent&& event) { kept.push_back(std::move(event)); });
  step({&sequence});
  step({&sequence});
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_THAT(kept[0].tokens, ElementsAre(1));
  EXPECT_FALSE(kept[0].finish);
  EXPECT_THAT(kept[1].tokens, ElementsAre(1));
  ASSERT_TRUE(kept[1].finish);
  EXPECT_TRUE(delivery_.empty());
}

TEST_F(DeliveryTest, TheIdIsFreeInTheCallOfTheLastEvent) {
  Status resubmitted = internal_error("not called");
  request::Sequence& sequence = add("same", 1, [&](const RequestEvent& event) {
    if (!event.finish) return;
    Arrivals arrivals;
    arrivals.push_back(live_request("same", nullptr));
    resubmitted = inbox_.submit(std::move(arrivals));
  });
  step({&sequence});
  EXPECT_TRUE(resubmitted.ok()) << resubmitted.to_string();
}

TEST_F(DeliveryTest, ASequenceThatAStepStillReadsStaysUntilItIsFinished) {
  scheduler_.step_in_flight = true;
  request::Sequence& sequence = add("a", 1);
  step({&sequence});
  EXPECT_TRUE(delivery_.empty());
  delivery_.free_ended();
  EXPECT_EQ(sequence.status, request::SequenceStatus::kEnding) << "read by the address sanitizer";
  const request::BatchPlan plan = plan_for({sequence.id});
  request::StepOutput output = output_for(plan);
  delivery_.deliver(plan, output, 0);
  EXPECT_EQ(events_.size(), 1u) << "the step after the end delivers nothing";
  sequence.status = request::SequenceStatus::kFinished;
  delivery_.free_ended();
}

TEST_F(DeliveryTest, AFailedDrawEndsItsRequestAlone) {
  request::Sequence& failing = add("a");
  request::Sequence& other = add("b");
  const request::BatchPlan plan = plan_for({failing.id, other.id});
  request::StepOutput output = output_for(plan);
  output.tokens[0].error = internal_error("a logit is not a number");
  other.tokens.push_back(5);
  delivery_.deliver(plan, output, 0);
  ASSERT_EQ(events_.size(), 2u);
  ASSERT_TRUE(events_[0].finish);
  EXPECT_EQ(events_[0].finish->reason, FinishReason::kError);
  EXPECT_THAT(events_[0].finish->error.message(), HasSubstr("not a number"));
  EXPECT_FALSE(events_[1].finish);
  EXPECT_THAT(scheduler_.calls, ElementsAre("release 1 aborted"));
}

TEST_F(DeliveryTest, SurvivesCallbacksThatThrow) {
  int64_t calls = 0;
  request::Sequence& throwing = add("a", 2, [&](const RequestEvent&) {
    ++calls;
    if (calls == 1) throw std::runtime_error("no");
    throw 7;  // not even an exception
  });
  request::Sequence& other = add("b");
  step({&throwing, &other});
  step({&throwing, &other});
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(events_.size(), 2u);
  EXPECT_EQ(delivery_.num_live(), 1);
}

TEST_F(DeliveryTest, EndsRequestsInOrderOfArrivalAndEachOnce) {
  std::vector<std::string> ended;
  for (int i = 0; i < 50; ++i) {
    const std::string id = fmt::format("{}", i);
    add(id, 4, [&ended, id](const RequestEvent& event) {
      ASSERT_TRUE(event.finish);
      EXPECT_EQ(event.finish->reason, FinishReason::kAbort);
      ended.push_back(id);
    });
  }
  delivery_.finish(3, {.reason = FinishReason::kAbort});
  delivery_.finish(3, {.reason = FinishReason::kAbort});
  delivery_.finish(1000, {.reason = FinishReason::kAbort});
  EXPECT_EQ(delivery_.finish_all({.reason = FinishReason::kAbort}), 49);
  ASSERT_EQ(ended.size(), 50u);
  EXPECT_EQ(ended[0], "2") << "sequence 3";
  EXPECT_EQ(ended[1], "0");
  EXPECT_EQ(ended[49], "49");
  EXPECT_EQ(delivery_.take_num_ended(), 50);
  EXPECT_EQ(delivery_.finish_all({.reason = FinishReason::kAbort}), 0);
}

TEST_F(DeliveryTest, ASpanIsOneEventAndEndsWithTheText) {
  request::Sequence& sequence = add("a", 5);
  sequence.ending_tokens = {9};
  sequence.request.return_logprobs = true;
  const auto step = [&](const std::vector<TokenId>& tokens) {
    request::BatchPlan plan = plan_for({sequence.id});
    plan.sequences[0].drafts.count = 3;
    request::StepOutput output;
    for (const TokenId token : tokens) {
      output.tokens.push_back({.sequence_id = sequence.id, .token = token, .logprob = {token}});
      sequence.tokens.push_back(token);
    }
    delivery_.deliver(plan, output, clock_.now_seconds());
  };
  step({4, 5});
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_THAT(events_[0].tokens, ElementsAre(4, 5));
  EXPECT_EQ(events_[0].logprobs.size(), 2u);
  EXPECT_EQ(events_[0].completion_tokens, 2);
  EXPECT_FALSE(events_[0].finish);
  step({6, 9, 7});  // a token after the end is not delivered
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_THAT(events_[1].tokens, ElementsAre(6, 9));
  EXPECT_EQ(events_[1].logprobs.back().token, 9);
  EXPECT_EQ(events_[1].completion_tokens, 4);
  EXPECT_EQ(events_[1].finish->matched_token, 9);
  EXPECT_EQ(delivery_.output_tokens(), 4);
  EXPECT_THAT(scheduler_.calls, ElementsAre("release 1 done"));
}

TEST_F(DeliveryTest, ASpanThatEndsWithAFailedDrawIsDeliveredBeforeTheError) {
  request::Sequence& sequence = add("a", 5);
  const request::BatchPlan plan = plan_for({sequence.id});
  request::StepOutput output;
  output.tokens = {{.sequence_id = sequence.id, .token = 4},
                   {.sequence_id = sequence.id, .error = internal_error("not a number")}};
  sequence.tokens.push_back(4);
  delivery_.deliver(plan, output, 0);
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_THAT(events_[0].tokens, ElementsAre(4));
  EXPECT_EQ(events_[1].finish->reason, FinishReason::kError);
  EXPECT_EQ(events_[1].completion_tokens, 1);
}

TEST_F(DeliveryTest, ARequestWithoutOutputEndsWithItsPrefill) {
  request::Sequence& sequence = add("a", 0);
  request::BatchPlan plan = plan_for({sequence.id});
  plan.sequences[0].sample = false;
  request::StepOutput none;
  sequence.num_computed = 2;
  delivery_.deliver(plan, none, 0);
  EXPECT_THAT(events_, IsEmpty()) << "a chunk that is not the last";
  sequence.num_computed = 3;
  delivery_.deliver(plan, none, 0);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].finish->reason, FinishReason::kLength);
  EXPECT_THAT(events_[0].tokens, IsEmpty());
}

}  // namespace
}  // namespace heddle::engine

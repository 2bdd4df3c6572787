// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue_limit.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A queue that does what enter_queue() says.
class Queue {
 public:
  explicit Queue(const QueueLimits& limits) : limits_(limits) {}

  Status enter(int64_t urgency, int64_t arrival, int64_t tokens = 0) {
    const QueuedRequest arriving{.urgency = urgency, .arrival = arrival, .tokens = tokens};
    return enter({&arriving, 1});
  }

  Status enter(std::span<const QueuedRequest> arriving) {
    const Status status = enter_queue(arriving, waiting_, limits_, displaced_);
    EXPECT_TRUE(status.ok() || displaced_.empty());
    if (!status.ok()) return status;
    std::vector<QueuedRequest> stay;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if (std::find(displaced_.begin(), displaced_.end(), static_cast<int32_t>(i)) ==
          displaced_.end()) {
        stay.push_back(waiting_[i]);
      }
    }
    waiting_ = stay;
    waiting_.insert(waiting_.end(), arriving.begin(), arriving.end());
    return status;
  }

  // One that ran before.
  void put_back(const QueuedRequest& request) { waiting_.push_back(request); }

  [[nodiscard]] std::vector<int64_t> arrivals() const {
    std::vector<int64_t> result;
    for (const QueuedRequest& request : waiting_) result.push_back(request.arrival);
    return result;
  }

 private:
  QueueLimits limits_;
  std::vector<QueuedRequest> waiting_;
  std::vector<int32_t> displaced_;
};

TEST(QueueLimitTest, AFullQueueDisplacesTheLeastUrgentNewest) {
  Queue queue({.max_requests = 3, .by_priority = true});
  ASSERT_TRUE(queue.enter(1, 1).ok());
  ASSERT_TRUE(queue.enter(0, 2).ok());
  ASSERT_TRUE(queue.enter(0, 3).ok());
  EXPECT_EQ(queue.enter(0, 4).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(queue.arrivals(), ElementsAre(1, 2, 3));
  EXPECT_TRUE(queue.enter(2, 5).ok());
  EXPECT_THAT(queue.arrivals(), ElementsAre(1, 2, 5));
  EXPECT_FALSE(queue.enter(0, 6).ok());
  EXPECT_TRUE(queue.enter(1, 7).ok());
  EXPECT_THAT(queue.arrivals(), ElementsAre(1, 5, 7));
}

TEST(QueueLimitTest, WithoutPrioritiesTheArrivingOneIsTurnedAway) {
  Queue queue({.max_requests = 2});
  ASSERT_TRUE(queue.enter(0, 1).ok());
  ASSERT_TRUE(queue.enter(0, 2).ok());
  const Status status = queue.enter(9, 3);
  EXPECT_THAT(status.message(), HasSubstr("2 requests are waiting, max_queued_requests = 2"));
  EXPECT_THAT(displaced_error().message(), Not(HasSubstr("the queue is full")));
}

TEST(QueueLimitTest, ReturnedRequestsAreExempt) {
  Queue queue({.max_requests = 2, .by_priority = true});
  queue.put_back({.urgency = 0, .arrival = 2, .returned = true});
  ASSERT_TRUE(queue.enter(1, 3).ok());
  ASSERT_TRUE(queue.enter(1, 4).ok()) << "the returned one does not count";
  ASSERT_TRUE(queue.enter(5, 5).ok());
  EXPECT_THAT(queue.arrivals(), ElementsAre(2, 3, 5)) << "nor is it displaced, though least urgent";
}

TEST(QueueLimitTest, TheLeastUrgentValueIsDisplacedByEveryOther) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  Queue queue({.max_requests = 1, .by_priority = true});
  ASSERT_TRUE(queue.enter(kLowest, 1).ok());
  EXPECT_FALSE(queue.enter(kLowest, 2).ok());
  EXPECT_TRUE(queue.enter(-5, 3).ok());
  EXPECT_THAT(queue.arrivals(), ElementsAre(3));
}

TEST(QueueLimitTest, TokensAreLimitedToo) {
  Queue queue({.max_tokens = 1000});
  ASSERT_TRUE(queue.enter(0, 1, 600).ok());
  ASSERT_TRUE(queue.enter(0, 2, 400).ok());
  const Status status = queue.enter(0, 3, 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              HasSubstr("1000 prompt tokens are waiting, the request brings 1, max_queued_tokens = "
                        "1000"));
}

TEST(QueueLimitTest, AnEmptyQueueTakesAnyRequest) {
  Queue queue({.max_tokens = 1000});
  EXPECT_TRUE(queue.enter(0, 1, 5000).ok());
  EXPECT_FALSE(queue.enter(0, 2, 1).ok());
}

TEST(QueueLimitTest, SeveralLeaveForALongRequestOrNone) {
  Queue queue({.max_tokens = 1000, .by_priority = true});
  ASSERT_TRUE(queue.enter(0, 1, 300).ok());
  ASSERT_TRUE(queue.enter(0, 2, 300).ok());
  ASSERT_TRUE(queue.enter(2, 3, 300).ok());
  EXPECT_FALSE(queue.enter(2, 4, 800).ok()) << "the third is as urgent";
  EXPECT_THAT(queue.arrivals(), ElementsAre(1, 2, 3));
  EXPECT_TRUE(queue.enter(2, 5, 600).ok());
  EXPECT_THAT(queue.arrivals(), ElementsAre(3, 5));
}

TEST(QueueLimitTest, ARequestThatGetsAnOpenSlotDoesNotCount) {
  Queue queue({.max_requests = 2, .num_open_slots = 3});
  for (int64_t arrival = 1; arrival <= 5; ++arrival) ASSERT_TRUE(queue.enter(0, arrival).ok());
  EXPECT_THAT(queue.enter(0, 6).message(),
              HasSubstr("2 requests are waiting, max_queued_requests = 2"));
}

TEST(QueueLimitTest, ACallEntersWholeOrNotAtAll) {
  Queue queue({.max_requests = 4, .max_tokens = 100, .by_priority = true});
  const auto call = [](int64_t first_arrival, const std::vector<int64_t>& urgencies,
                       int64_t tokens) {
    std::vector<QueuedRequest> requests;
    for (const int64_t urgency : urgencies) {
      requests.push_back(
          {.urgency = urgency, .arrival = first_arrival + std::ssize(requests), .tokens = tokens});
    }
    return requests;
  };
  EXPECT_FALSE(queue.enter(call(1, {9, 9, 9, 9, 9}, 1)).ok()) << "more than ever wait";
  EXPECT_THAT(queue.arrivals(), IsEmpty());
  ASSERT_TRUE(queue.enter(call(1, {0, 1, 2}, 50)).ok()) << "none waits: any number of tokens";
  const Status many = queue.enter(call(4, {0, 0}, 0));
  EXPECT_THAT(many.message(), HasSubstr("3 requests are waiting and 2 came at once"));
  const Status longer = queue.enter(call(4, {0}, 60));
  EXPECT_THAT(longer.message(), HasSubstr("150 prompt tokens are waiting, the request brings 60"));
  EXPECT_FALSE(queue.enter(call(4, {5, 5, 1}, 1)).ok()) << "one of them is not urgent enough";
  EXPECT_THAT(queue.arrivals(), ElementsAre(1, 2, 3));
  ASSERT_TRUE(queue.enter(call(4, {5, 5, 2}, 1)).ok());
  EXPECT_THAT(queue.arrivals(), ElementsAre(3, 4, 5, 6));
}

TEST(QueueLimitTest, NoneLeavesWhileThereIsRoom) {
  std::vector<int32_t> displaced = {4};
  const std::vector<QueuedRequest> waiting = {{.urgency = 0, .arrival = 1, .tokens = 10}};
  const QueuedRequest arriving{.urgency = 9, .arrival = 2, .tokens = 10};
  EXPECT_TRUE(enter_queue({&arriving, 1}, waiting,
                          {.max_requests = 2, .max_tokens = 20, .by_priority = true}, displaced)
                  .ok());
  EXPECT_THAT(displaced, IsEmpty());
}

}  // namespace
}  // namespace heddle::scheduler

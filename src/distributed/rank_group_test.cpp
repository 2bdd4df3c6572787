// SPDX-License-Identifier: Apache-2.0
#include "distributed/rank_group.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/tensor.h"
#include "distributed/rank_threads.h"

namespace heddle::distributed {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kForEver{0};

// One tensor [1, 1] for each rank, which holds rank + 1.
struct Numbers {
  explicit Numbers(int64_t size) {
    for (int64_t rank = 0; rank < size; ++rank) {
      tensors.emplace_back(Shape{1, 1}, DType::kF32);
      *tensors.back().view().as<float>() = static_cast<float>(rank + 1);
    }
  }

  [[nodiscard]] Shown of(int64_t rank, const char* op = "sum") {
    return {op, tensors[static_cast<size_t>(rank)].view()};
  }

  std::vector<Tensor> tensors;
};

Status meet(RankGroup& group, int64_t rank, const Shown& shown) {
  return group.meet(rank, shown, [](std::span<const Shown>) {});
}

TEST(RankGroup, ShowsEveryRankWhatAllHave) {
  for (const int64_t size : {1, 2, 3, 8}) {
    SCOPED_TRACE(size);
    auto group = std::make_shared<RankGroup>(size, kForEver);
    const auto ranks = RankThreads::start(group).value();
    Numbers numbers(size);
    constexpr int kRounds = 200;
    std::vector<double> sums(static_cast<size_t>(size), 0.0);
    const Status status = ranks->run([&](int64_t rank) -> Status {
      for (int round = 0; round < kRounds; ++round) {
        double sum = 0;
        HEDDLE_RETURN_IF_ERROR(group->meet(rank, numbers.of(rank), [&](std::span<const Shown> all) {
          for (const Shown& shown : all) sum += *shown.tensor.as<float>();
        }));
        // All ranks have read the tensor, so that it may change.
        *numbers.tensors[static_cast<size_t>(rank)].view().as<float>() += 1;
        sums[static_cast<size_t>(rank)] += sum;
      }
      return {};
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
    // In round k the number of every rank is k larger than in round 0.
    const double first = static_cast<double>(size * (size + 1)) / 2;
    const double all = kRounds * first + static_cast<double>(size) * kRounds * (kRounds - 1) / 2;
    EXPECT_THAT(sums, ::testing::Each(all));
  }
}

TEST(RankGroup, NamesTheRanksThatAreMissingAtTheDeadline) {
  RankGroup group(3, 1ms);
  Numbers numbers(3);
  const Status status = meet(group, 1, numbers.of(1));
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_EQ(status.message(), "rank 1 waited 1 ms at collective 0 (sum) for rank 0, 2");
  EXPECT_EQ(meet(group, 0, numbers.of(0)).message(), status.message()) << "the group has ended";
}

TEST(RankGroup, EndsWhoeverWaitsWhenOneGivesUp) {
  RankGroup group(2, kForEver);
  Numbers numbers(2);
  Status waited;
  std::thread other([&] { waited = meet(group, 1, numbers.of(1)); });
  group.abort(internal_error("no memory"));
  group.abort(internal_error("a later cause"));
  other.join();
  EXPECT_EQ(waited.message(), "no memory");
  EXPECT_EQ(group.status().message(), "no memory");
}

TEST(RankGroup, EndsRanksThatAreInDifferentCollectives) {
  const auto of_two = [](const Shown& first, const Shown& second) {
    auto group = std::make_shared<RankGroup>(2, kForEver);
    const auto ranks = RankThreads::start(group).value();
    return ranks->run([&](int64_t rank) { return meet(*group, rank, rank == 0 ? first : second); });
  };
  Numbers numbers(2);
  const Tensor longer({2, 1}, DType::kF32);
  const Tensor half({1, 1}, DType::kBf16);
  const TensorView one = numbers.of(0).tensor;
  EXPECT_TRUE(of_two(numbers.of(0), numbers.of(1)).ok());
  EXPECT_TRUE(of_two({"gather", one, 5, 3}, {"gather", one, 5, 3}).ok());
  EXPECT_THAT(
      of_two(numbers.of(0, "sum"), numbers.of(1, "gather")).message(),
      HasSubstr("rank 0 in sum with float32 [1, 1] to 0 columns, at most 0 of a rank, rank 1 in "
                "gather with float32 [1, 1]"));
  EXPECT_THAT(of_two(numbers.of(0), {"sum", longer.view()}).message(),
              HasSubstr("sum with float32 [2, 1]"));
  EXPECT_EQ(of_two(numbers.of(0), {"sum", half.view()}).code(), StatusCode::kInternal);
  EXPECT_THAT(
      of_two({"gather", one, 5, 3}, {"gather", one, 6, 3}).message(),
      HasSubstr("to 5 columns, at most 3 of a rank, rank 1 in gather with float32 [1, 1] to 6 "
                "columns, at most 3 of a rank"));
  EXPECT_EQ(of_two({"gather", one, 5, 3}, {"gather", one, 5, 4}).code(), StatusCode::kInternal);
}

TEST(RankThreads, TellTheFirstCauseAndCarryOutNothingAfterIt) {
  auto group = std::make_shared<RankGroup>(3, kForEver);
  const auto ranks = RankThreads::start(group).value();
  Numbers numbers(3);
  std::atomic<int> calls{0};
  const RankThreads::Task fails = [&](int64_t rank) {
    ++calls;
    return rank == 2 ? resource_exhausted("no page") : meet(*group, rank, numbers.of(rank));
  };
  const Status status = ranks->run(fails);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "rank 2: no page");
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(ranks->run(fails).message(), status.message());
  EXPECT_EQ(calls, 3);
}

TEST(RankThreads, MakeAStatusOfAnException) {
  auto group = std::make_shared<RankGroup>(2, kForEver);
  const auto ranks = RankThreads::start(group).value();
  const Status status = ranks->run([](int64_t rank) -> Status {
    if (rank == 1) throw std::runtime_error("torn");
    return {};
  });
  EXPECT_EQ(status.message(), "rank 1: a step threw: torn");
}

// Rank 1 hangs until the test lets it go.
TEST(RankThreads, DoNotWaitForARankThatHangs) {
  auto group = std::make_shared<RankGroup>(2, 1ms);
  std::promise<void> let_go;
  const auto ranks = RankThreads::start(group, std::chrono::hours(1)).value();
  const RankThreads::Task hangs = [&, gate = let_go.get_future().share()](int64_t rank) -> Status {
    if (rank == 1) gate.wait();
    return {};
  };
  const Status status = ranks->run(hangs);
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_EQ(status.message(), "rank 1 did not end its step within 2 ms of rank 0");
  EXPECT_EQ(ranks->run(hangs).message(), status.message());
  let_go.set_value();
  ranks->wait_until_idle();
}

// A process in which a rank hangs for ever, so that the group ends at its deadline.
void hang(int64_t which) {
  auto group = std::make_shared<RankGroup>(3, 1ms);
  const auto ranks = RankThreads::start(group, 1ms).value();
  Numbers numbers(3);
  std::promise<void> never;
  (void)ranks->run([&](int64_t rank) -> Status {
    if (rank != which) return meet(*group, rank, numbers.of(rank));
    never.get_future().wait();
    return {};
  });
  ranks->wait_until_idle();
}

TEST(RankThreadsDeathTest, EndTheProcessIfARankNeverEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr const char* kCause = " still computes 1 ms after .*waited 1 ms at collective 0";
  EXPECT_DEATH(hang(0), std::string("rank 0") + kCause);
  EXPECT_DEATH(hang(2), kCause);  // a rank that is slow to see the error may be named first
}

}  // namespace
}  // namespace heddle::distributed

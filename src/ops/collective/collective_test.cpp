// SPDX-License-Identifier: Apache-2.0
#include "ops/collective/collective.h"

#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/rank_threads.h"
#include "ops/collective/collective_reference.h"
#include "ops/registry.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using distributed::RankGroup;
using distributed::RankThreads;
using ::testing::HasSubstr;

// Ranks of one CPU, each with a context of its own.
class Ranks {
 public:
  explicit Ranks(int64_t size)
      : group_(std::make_shared<RankGroup>(size, std::chrono::milliseconds(0))),
        threads_(RankThreads::start(group_).value()) {
    for (int64_t rank = 0; rank < size; ++rank) {
      communicators_.push_back(std::make_unique<distributed::Communicator>(group_, rank));
      contexts_.push_back(std::make_unique<CpuContext>(pool_));
      contexts_.back()->ranks = communicators_.back().get();
    }
  }

  Status run(const std::function<Status(Context&, size_t rank)>& task) {
    return threads_->run([&](int64_t rank) {
      const auto index = static_cast<size_t>(rank);
      return task(*contexts_[index], index);
    });
  }

 private:
  device::ThreadPool pool_{1};
  std::shared_ptr<RankGroup> group_;
  std::unique_ptr<RankThreads> threads_;
  std::vector<std::unique_ptr<distributed::Communicator>> communicators_;
  std::vector<std::unique_ptr<CpuContext>> contexts_;
};

// A random tensor [T, width] for each rank, with rows `stride` elements apart.
struct Parts {
  Parts(const std::vector<int64_t>& widths, int64_t T, int64_t stride) {
    for (const int64_t width : widths) {
      tensors.push_back(testing::random_tensor({T, stride}, DType::kF32, 7 + tensors.size()));
      views.emplace_back(tensors.back().view().data, DType::kF32, Shape{T, width}, stride);
    }
  }

  std::vector<Tensor> tensors;
  std::vector<TensorView> views;
};

TEST(AllReduce, AddsInTheOrderOfTheRanks) {
  for (const int64_t R : {1, 2, 3, 4, 8}) {
    for (const auto& [T, N] : {std::pair<int64_t, int64_t>{0, 5}, {1, 1}, {3, 7}, {17, 64}}) {
      SCOPED_TRACE(fmt::format("{} ranks, [{}, {}]", R, T, N));
      const Parts x(std::vector<int64_t>(static_cast<size_t>(R), N), T, N + 3);
      std::vector<Tensor> y;
      for (int64_t rank = 0; rank < R; ++rank) y.emplace_back(Shape{T, N}, DType::kF32);
      Ranks ranks(R);
      const Status status = ranks.run([&](Context& context, size_t rank) {
        return all_reduce(context, Reduction::kSum, x.views[rank], y[rank].view());
      });
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t n = 0; n < N; ++n) {
          float sum = x.views[0].row<float>(t)[n];
          for (size_t rank = 1; rank < x.views.size(); ++rank) {
            sum += x.views[rank].row<float>(t)[n];
          }
          EXPECT_NEAR(sum, all_reduce_reference(x.views, t, n), 1e-5);
          for (const Tensor& own : y) EXPECT_EQ(own.view().row<float>(t)[n], sum);
        }
      }
    }
  }
}

TEST(AllReduceBits, KeepsTheBitsOfTheOneRankThatHasANumber) {
  constexpr int64_t kRanks = 3;
  const float numbers[] = {-0.0f,
                           0.0f,
                           1.5f,
                           -std::numeric_limits<float>::denorm_min(),
                           std::numeric_limits<float>::infinity(),
                           std::bit_cast<float>(0xffc12345u),
                           std::bit_cast<float>(0x7f812345u)};
  constexpr int64_t kWidth = std::ssize(numbers);
  std::vector<Tensor> x, y;
  std::vector<TensorView> views;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    x.emplace_back(Shape{1, kWidth}, DType::kF32);
    y.emplace_back(Shape{1, kWidth}, DType::kF32);
    for (int64_t n = 0; n < kWidth; ++n) {
      if (n % kRanks == rank) std::memcpy(x.back().view().row<float>(0) + n, numbers + n, 4);
    }
  }
  for (const Tensor& own : x) views.push_back(own.view());
  Ranks ranks(kRanks);
  const Status status = ranks.run([&](Context& context, size_t rank) {
    return all_reduce(context, Reduction::kBits, views[rank], y[rank].view());
  });
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (const Tensor& own : y) {
    EXPECT_EQ(std::memcmp(own.view().data, numbers, sizeof(numbers)), 0);
    for (int64_t n = 0; n < kWidth; ++n) {
      EXPECT_EQ(std::bit_cast<uint32_t>(own.view().row<float>(0)[n]),
                all_reduce_bits_reference(views, 0, n));
    }
  }
}

TEST(GatherColumns, SetsTheRanksSideBySide) {
  const std::vector<std::vector<int64_t>> shares = {
      {5}, {4, 4}, {3, 3, 1}, {2, 2, 2, 2, 2, 2, 2, 1}};
  for (const std::vector<int64_t>& widths : shares) {
    SCOPED_TRACE(fmt::format("{} ranks", widths.size()));
    constexpr int64_t kRows = 3;
    const Parts x(widths, kRows, 9);
    int64_t N = 0;
    for (const int64_t width : widths) N += width;
    std::vector<Tensor> y;
    for (size_t rank = 0; rank < widths.size(); ++rank)
      y.emplace_back(Shape{kRows, N}, DType::kF32);
    Ranks ranks(std::ssize(widths));
    const Status status = ranks.run([&](Context& context, size_t rank) {
      return gather_columns(context, x.views[rank], widths.front(), y[rank].view());
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (const Tensor& own : y) {
      for (int64_t t = 0; t < kRows; ++t) {
        for (int64_t n = 0; n < N; ++n) {
          EXPECT_EQ(own.view().row<float>(t)[n], gather_columns_reference(x.views, t, n));
        }
      }
    }
  }
}

TEST(Collectives, RefuseWhatDoesNotFit) {
  device::ThreadPool pool(1);
  CpuContext alone(pool);
  Tensor x({2, 4}, DType::kF32), y({2, 4}, DType::kF32), narrow({2, 3}, DType::kF32);
  EXPECT_EQ(all_reduce(alone, Reduction::kSum, x.view(), y.view()).message(),
            "all_reduce: the context belongs to no rank of a group");
  Ranks one(1);
  EXPECT_THAT(one.run([&](Context& context, size_t) {
                   return all_reduce(context, Reduction::kBits, x.view(), narrow.view());
                 })
                  .message(),
              HasSubstr("all_reduce_bits: y has N = 3, x has N = 4"));
  Ranks other(1);
  EXPECT_THAT(other
                  .run([&](Context& context, size_t) {
                    return gather_columns(context, x.view(), 3, y.view());
                  })
                  .message(),
              HasSubstr("each"));
}

TEST(Collectives, AreNotAllowedToBeDeadCode) {
  for (const char* name : {"all_reduce", "all_reduce_bits", "gather_columns"}) {
    EXPECT_NE(builtin_ops().find(name)->effects & kCollective, 0u) << name;
  }
}

}  // namespace
}  // namespace heddle::ops

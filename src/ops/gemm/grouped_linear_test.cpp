// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/grouped_linear.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/gemm/grouped_linear_reference.h"
#include "ops/gemm/product_fixture.h"

namespace heddle::ops {

namespace {

using testing::GuardedTensor;

TensorView int_view(const std::vector<int32_t>& values) {
  return {values.data(), DType::kI32, {static_cast<int64_t>(values.size())}};
}

std::vector<int32_t> offsets_of(const std::vector<int32_t>& counts) {
  std::vector<int32_t> offsets{0};
  for (const int32_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

struct GroupedCase {
  std::vector<int32_t> counts;  // rows of each expert
  int64_t K;
  int64_t N;
};

const GroupedCase kCases[] = {
    {{0, 1, 0, 0, 1}, 64, 100},    // decode: one row each, most experts untouched
    {{3, 0, 40, 1, 5}, 96, 70},    // every kernel beside every other
    {{130, 20, 64, 9}, 257, 130},  // prefill
    {{1, 1, 1}, 7, 3},
    {{0, 0}, 8, 8},
};

void expect_matches(const LinearReference& truth, const MutableTensorView& y, int64_t K,
                    bool rounded) {
  for (size_t i = 0; i < truth.y.size(); ++i) {
    const auto N = static_cast<size_t>(y.shape[1]);
    const double value = element_of(y, static_cast<int64_t>(i / N), static_cast<int64_t>(i % N));
    // As in linear_test.cpp: K roundings of a sum, and x rounded to bf16.
    const double bound = truth.magnitude[i] * (static_cast<double>(K + 2) * std::ldexp(1.0, -24) +
                                               (rounded ? std::ldexp(1.0, -8) : 0.0));
    ASSERT_TRUE(std::fabs(value - truth.y[i]) <= bound + 1e-30)
        << fmt::format("element {} is {}, expected {}", i, value, truth.y[i]);
  }
}

TEST(GroupedLinearTest, MatchesTheReferenceForEveryMixOfGroupSizes) {
  device::ThreadPool pool(2);
  for (const auto& [exact, bf16] : {std::pair(false, false), {false, true}, {true, true}}) {
    CpuContext context(pool, exact, testing::instructions(bf16));
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      for (const GroupedCase& test : kCases) {
        for (const bool indirect : {false, true}) {
          const auto E = static_cast<int64_t>(test.counts.size());
          const std::vector<int32_t> offsets = offsets_of(test.counts);
          const int64_t R = offsets.back();
          const int64_t S = indirect ? 5 : R;
          SCOPED_TRACE(
              fmt::format("R = {}, K = {}, N = {}, {}, exact = {}, bf16 = {}, indirect = {}", R,
                          test.K, test.N, to_string(dtype), exact, bf16, indirect));
          GuardedTensor x({S, test.K}, DType::kF32, 3);
          GuardedTensor weight({E, test.N, test.K}, dtype, 11);
          GuardedTensor y({R, test.N}, DType::kF32, 2);
          x.randomize(1);
          weight.randomize(2);
          std::vector<int32_t> rows;
          for (int64_t r = 0; r < R; ++r) rows.push_back(static_cast<int32_t>((r * 7 + 3) % 5));
          std::vector<std::byte> workspace(
              static_cast<size_t>(grouped_linear_workspace_bytes(context, S, E, test.K, dtype)));
          const GroupedLinearArgs args{.x = x.view(),
                                       .weight = weight.view(),
                                       .row_offsets = int_view(offsets),
                                       .x_rows = indirect && R > 0 ? int_view(rows) : TensorView{},
                                       .y = y.view(),
                                       .workspace = workspace};
          if (indirect && R == 0) continue;
          const Status status = grouped_linear(context, args);
          ASSERT_TRUE(status.ok()) << status.to_string();
          expect_matches(grouped_linear_reference(args), y.view(), test.K,
                         rounds_x(dtype, product_options(context)));
          if (R > 0) {
            EXPECT_TRUE(y.padding_untouched());
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(GroupedLinearTest, SaysWhichOffsetOrRowIsWrong) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  GuardedTensor x({2, 8}, DType::kF32);
  GuardedTensor weight({2, 3, 8}, DType::kF32);
  GuardedTensor y({2, 3}, DType::kF32);
  x.randomize(1);
  weight.randomize(2);
  std::vector<std::byte> workspace(
      static_cast<size_t>(grouped_linear_workspace_bytes(context, 2, 2, 8, DType::kF32)));
  const auto run = [&](const std::vector<int32_t>& offsets, const std::vector<int32_t>& rows) {
    return grouped_linear(context, {.x = x.view(),
                                    .weight = weight.view(),
                                    .row_offsets = int_view(offsets),
                                    .x_rows = rows.empty() ? TensorView{} : int_view(rows),
                                    .y = y.view(),
                                    .workspace = workspace});
  };
  EXPECT_TRUE(run({0, 1, 2}, {}).ok());
  EXPECT_EQ(run({0, 1, 3}, {}).message(),
            "grouped_linear: row_offsets run from 0 to 3, they must run from 0 to R = 2");
  EXPECT_EQ(run({0, 3, 2}, {}).message(),
            "grouped_linear: row_offsets fall from 3 to 2 at expert 1");
  EXPECT_EQ(run({0, 1, 2}, {0, 2}).message(), "grouped_linear: x_rows[1] is 2, x has 2 rows");
  EXPECT_EQ(run({0, 2}, {}).code(), StatusCode::kInvalidArgument);
}

}  // namespace

}  // namespace heddle::ops

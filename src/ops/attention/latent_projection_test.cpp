// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/latent_projection.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/attention/latent_projection_reference.h"
#include "ops/device_fixture.h"
#include "ops/gemm/product_fixture.h"
#include "ops/simd/targets.h"
#include "support/tensors.h"

// clang-format off
#include <hwy/targets.h>  // after targets.h, which says what is compiled
// clang-format on

namespace heddle::ops {

namespace {

using testing::GuardedTensor;
using ::testing::HasSubstr;

struct Sizes {
  int64_t N = 4;  // heads
  int64_t Dn = 16;
  int64_t Dr = 8;
  int64_t Dv = 16;
  int64_t C = 32;
};

// Products of at most a few hundred terms of size one, summed in fp32.
constexpr double kTolerance = 1e-6;

class LatentProjectionTest : public ::testing::Test {
 protected:
  device::ThreadPool pool_{3};
  CpuContext context_{pool_};
};

using heddle::testing::relative_error;
using heddle::testing::same_bits;

TEST_F(LatentProjectionTest, MatchesTheReferenceInBothDirections) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const Sizes& s : {Sizes{}, Sizes{1, 1, 0, 1, 1}, Sizes{3, 7, 5, 9, 37},
                           Sizes{2, 64, 32, 48, 144}, Sizes{2, 128, 64, 128, 512}}) {
      for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
        for (const int64_t T : {0, 1, 3, 67}) {
          if (T == 67 && s.C > 144) continue;
          SCOPED_TRACE(fmt::format("{} N {} Dn {} Dr {} Dv {} C {} {} T {}",
                                   hwy::TargetName(target), s.N, s.Dn, s.Dr, s.Dv, s.C,
                                   to_string(dtype), T));
          GuardedTensor weight({s.N * (s.Dn + s.Dv), s.C}, dtype, 3);
          GuardedTensor q({T, s.N * (s.Dn + s.Dr)}, DType::kF32, 5);
          GuardedTensor absorbed({T, s.N * (s.C + s.Dr)}, DType::kF32, 2);
          GuardedTensor o({T, s.N * s.C}, DType::kF32, 1);
          GuardedTensor values({T, s.N * s.Dv}, DType::kF32, 4);
          weight.randomize(1);
          q.randomize(2);
          o.randomize(3);
          const LatentProjectionArgs absorb{.x = q.view(),
                                            .weight = weight.view(),
                                            .y = absorbed.view(),
                                            .num_heads = s.N,
                                            .key_dim = s.Dn};
          ASSERT_EQ(absorb_query(context_, absorb).to_string(), "OK");
          const LatentProjectionArgs expand{.x = o.view(),
                                            .weight = weight.view(),
                                            .y = values.view(),
                                            .num_heads = s.N,
                                            .key_dim = s.Dn};
          ASSERT_EQ(expand_values(context_, expand).to_string(), "OK");
          if (T == 0) continue;
          EXPECT_LT(relative_error(absorbed.view(), absorb_query_reference(absorb)), kTolerance);
          EXPECT_LT(relative_error(values.view(), expand_values_reference(expand)), kTolerance);
          EXPECT_TRUE(absorbed.padding_untouched());
          EXPECT_TRUE(values.padding_untouched());
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Scores of absorbed queries with latents are those of the queries with expanded keys.
TEST_F(LatentProjectionTest, GivesTheScoresOfExpandedKeys) {
  constexpr int64_t kN = 2, kDn = 6, kC = 10, kDv = 3;
  GuardedTensor weight({kN * (kDn + kDv), kC}, DType::kF32);
  GuardedTensor q({1, kN * kDn}, DType::kF32), c({1, kC}, DType::kF32);
  GuardedTensor absorbed({1, kN * kC}, DType::kF32);
  weight.randomize(4);
  q.randomize(5);
  c.randomize(6);
  ASSERT_TRUE(absorb_query(context_, {.x = q.view(),
                                      .weight = weight.view(),
                                      .y = absorbed.view(),
                                      .num_heads = kN,
                                      .key_dim = kDn})
                  .ok());
  for (int64_t h = 0; h < kN; ++h) {
    double expanded = 0, latent = 0;
    for (int64_t i = 0; i < kC; ++i) {
      const double x = element_of(c.view(), 0, i);
      latent += element_of(absorbed.view(), 0, h * kC + i) * x;
      for (int64_t j = 0; j < kDn; ++j) {
        expanded += element_of(q.view(), 0, h * kDn + j) *
                    element_of(weight.view(), h * (kDn + kDv) + j, i) * x;
      }
    }
    EXPECT_NEAR(latent, expanded, 2e-6);
  }
}

TEST_F(LatentProjectionTest, GivesARowTheSameBitsInEveryBatch) {
  const Sizes s{.N = 3, .Dn = 24, .Dr = 8, .Dv = 40, .C = 72};
  constexpr int64_t kT = 131;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    GuardedTensor weight({s.N * (s.Dn + s.Dv), s.C}, dtype);
    GuardedTensor q({kT, s.N * (s.Dn + s.Dr)}, DType::kF32), o({kT, s.N * s.C}, DType::kF32);
    weight.randomize(1);
    q.randomize(2);
    o.randomize(3);
    const auto run = [&](auto op, const TensorView& x, int64_t width, int64_t rows_at_once) {
      Tensor y({kT, width}, DType::kF32);
      heddle::testing::poison(y);
      for (int64_t t = 0; t < kT; t += rows_at_once) {
        const int64_t rows = std::min(rows_at_once, kT - t);
        EXPECT_TRUE(op(context_, {.x = {x.row<float>(t), DType::kF32, {rows, x.shape[1]}},
                                  .weight = weight.view(),
                                  .y = {y.view().row<float>(t), DType::kF32, {rows, width}},
                                  .num_heads = s.N,
                                  .key_dim = s.Dn})
                        .ok());
      }
      return y;
    };
    for (const int64_t rows : {1, 6, 65}) {
      EXPECT_TRUE(same_bits(run(absorb_query, q.view(), s.N * (s.C + s.Dr), kT).view(),
                            run(absorb_query, q.view(), s.N * (s.C + s.Dr), rows).view()));
      EXPECT_TRUE(same_bits(run(expand_values, o.view(), s.N * s.Dv, kT).view(),
                            run(expand_values, o.view(), s.N * s.Dv, rows).view()));
    }
  }
}

TEST_F(LatentProjectionTest, SaysWhatDoesNotFit) {
  Tensor weight({2 * 7, 10}, DType::kF32), q({1, 2 * 6}, DType::kF32), y({1, 2 * 12}, DType::kF32);
  const LatentProjectionArgs good{
      .x = q.view(), .weight = weight.view(), .y = y.view(), .num_heads = 2, .key_dim = 4};
  ASSERT_TRUE(absorb_query(context_, good).ok());
  LatentProjectionArgs wrong = good;
  wrong.key_dim = 7;
  EXPECT_THAT(absorb_query(context_, wrong).message(), HasSubstr("a value part for 2 heads"));
  wrong = good;
  wrong.num_heads = 0;
  EXPECT_THAT(absorb_query(context_, wrong).message(), HasSubstr("num_heads is 0"));
  wrong = good;
  wrong.key_dim = 5;
  EXPECT_THAT(absorb_query(context_, wrong).message(), HasSubstr("rows of 12 become rows of 24"));
  EXPECT_THAT(expand_values(context_, good).message(), HasSubstr("x has N * C = 12"));
}

class LatentProjectionDeviceTest : public DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(LatentProjectionDeviceTest);

using heddle::testing::random_tensor;

TEST_P(LatentProjectionDeviceTest, MatchesTheReferenceAndGivesARowTheSameBitsInEveryBatch) {
  for (const Sizes& s : {Sizes{1, 1, 0, 1, 1}, Sizes{3, 7, 5, 9, 37}, Sizes{2, 64, 32, 48, 144},
                         Sizes{2, 32, 8, 16, 304}}) {
    for (const DType dtype : activation_dtypes()) {
      for (const DType weight_dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
        constexpr int64_t kT = 19;
        SCOPED_TRACE(fmt::format("N {} Dn {} Dr {} Dv {} C {} {} x {}", s.N, s.Dn, s.Dr, s.Dv, s.C,
                                 to_string(dtype), to_string(weight_dtype)));
        const Tensor weight = random_tensor({s.N * (s.Dn + s.Dv), s.C}, weight_dtype, 1);
        const DeviceTensor weight_here = upload(weight);

        struct Direction {
          Status (*op)(Context&, const LatentProjectionArgs&);
          std::vector<double> (*reference)(const LatentProjectionArgs&);
          int64_t from, to;
        };

        for (const Direction& direction :
             {Direction{absorb_query, absorb_query_reference, s.N * (s.Dn + s.Dr),
                        s.N * (s.C + s.Dr)},
              Direction{expand_values, expand_values_reference, s.N * s.C, s.N * s.Dv}}) {
          const Tensor x = random_tensor({kT, direction.from}, dtype, 2);
          const DeviceTensor x_here = upload(x);
          const auto run = [&](int64_t first, int64_t T) {
            DeviceTensor y = poisoned({T, direction.to}, dtype);
            const auto* rows =
                x_here.view().as<std::byte>() + bytes_of(dtype, first * direction.from);
            const Status status = direction.op(context(), {.x = {rows, dtype, {T, direction.from}},
                                                           .weight = weight_here.view(),
                                                           .y = y.view(),
                                                           .num_heads = s.N,
                                                           .key_dim = s.Dn});
            EXPECT_TRUE(status.ok()) << status.to_string();
            return download(y);
          };
          const Tensor together = run(0, kT);
          EXPECT_LT(relative_error(together.view(), direction.reference({.x = x.view(),
                                                                         .weight = weight.view(),
                                                                         .y = {},
                                                                         .num_heads = s.N,
                                                                         .key_dim = s.Dn})),
                    kTolerance + rounding_of(dtype));
          for (const int64_t T : {1, 5}) {
            const TensorView last(
                together.view().as<std::byte>() + bytes_of(dtype, (kT - T) * direction.to), dtype,
                {T, direction.to});
            EXPECT_TRUE(same_bits(run(kT - T, T).view(), last));
          }
        }
      }
    }
  }
}

}  // namespace

}  // namespace heddle::ops

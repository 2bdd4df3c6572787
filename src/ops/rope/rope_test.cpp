// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope.h"

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/norm/rms_norm.h"
#include "ops/norm/rms_norm_reference.h"
#include "ops/registry.h"
#include "ops/rope/rope_reference.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::poison;
using testing::random_tensor;
using testing::relative_error;
using testing::to_doubles;

// An angle of a few thousand radians is known to about 1e-4 in fp32; the reference forms it in fp32
// too, so what is left is the rounding of sine, cosine and two products.
constexpr double kTolerance = 1e-6;

Tensor positions_of(std::initializer_list<int32_t> values) {
  Tensor positions({static_cast<int64_t>(values.size())}, DType::kI32);
  std::copy(values.begin(), values.end(), positions.span<int32_t>().begin());
  return positions;
}

Tensor frequencies_of(int64_t half, double base) {
  Tensor frequencies({half}, DType::kF32);
  for (int64_t i = 0; i < half; ++i) {
    frequencies.span<float>()[static_cast<size_t>(i)] =
        static_cast<float>(std::pow(base, -static_cast<double>(i) / static_cast<double>(half)));
  }
  return frequencies;
}

class RopeTest : public ::testing::Test {
 protected:
  device::ThreadPool pool_{2};
  CpuContext context_{pool_};
  Tensor positions_ = positions_of({0, 1, 2, 5000, 262143});
};

TEST_F(RopeTest, RotatesTheFirstChannelsOfEveryHeadAndPassesTheRest) {
  struct Case {
    int64_t num_heads, D, half;
  };

  for (const auto& [num_heads, D, half] :
       {Case{3, 32, 4}, Case{2, 256, 32}, Case{1, 6, 3}, Case{4, 128, 64}}) {
    SCOPED_TRACE(fmt::format("N = {}, D = {}, R/2 = {}", num_heads, D, half));
    const Tensor x = random_tensor({5, num_heads * D}, DType::kF32, 1);
    const Tensor frequencies = frequencies_of(half, 10000);
    Tensor y({5, num_heads * D}, DType::kF32);
    poison(y);
    ASSERT_TRUE(rope(context_, {.x = x.view(),
                                .positions = positions_.view(),
                                .inverse_frequencies = frequencies.view(),
                                .y = y.view(),
                                .head_dim = D,
                                .factor = 1.25f})
                    .ok());
    EXPECT_LT(
        relative_error(y.view(), rope_reference(to_doubles(x.view()), positions_.span<int32_t>(),
                                                frequencies.span<float>(), D, 1.25)),
        kTolerance);
  }
}

TEST_F(RopeTest, RotatesChannelsInTheMiddleOfAHeadInHalvesOrInPairs) {
  struct Case {
    int64_t num_heads, D, first, half;
  };

  for (const auto& [num_heads, D, first, half] :
       {Case{4, 24, 16, 4}, Case{1, 64, 0, 32}, Case{2, 192, 128, 32}, Case{3, 11, 2, 3}}) {
    for (const bool interleaved : {false, true}) {
      SCOPED_TRACE(fmt::format("D = {}, first = {}, interleaved = {}", D, first, interleaved));
      const Tensor x = random_tensor({5, num_heads * D}, DType::kF32, 1);
      const Tensor frequencies = frequencies_of(half, 10000);
      Tensor y({5, num_heads * D}, DType::kF32);
      poison(y);
      RopeArgs args{.x = x.view(),
                    .norm_weight = {},
                    .positions = positions_.view(),
                    .inverse_frequencies = frequencies.view(),
                    .y = y.view(),
                    .head_dim = D,
                    .first_channel = first,
                    .interleaved = interleaved,
                    .factor = 0.75f};
      ASSERT_TRUE(rope(context_, args).ok());
      EXPECT_LT(
          relative_error(y.view(),
                         rope_reference(to_doubles(x.view()), positions_.span<int32_t>(),
                                        frequencies.span<float>(), D, 0.75, first, interleaved)),
          kTolerance);
      Tensor in_place = random_tensor({5, num_heads * D}, DType::kF32, 1);
      args.x = in_place.view();
      args.y = in_place.view();
      ASSERT_TRUE(rope(context_, args).ok());
      EXPECT_TRUE(testing::same_bits(in_place.view(), y.view()));
    }
  }
}

TEST_F(RopeTest, NormalisesEachHeadFirstWhenItHasAWeight) {
  const Tensor x = random_tensor({5, 3 * 48}, DType::kF32, 2);
  const Tensor weight = random_tensor({48}, DType::kF32, 3);
  const Tensor frequencies = frequencies_of(6, 1e7);
  Tensor y({5, 3 * 48}, DType::kF32);
  poison(y);
  ASSERT_TRUE(rope(context_, {.x = x.view(),
                              .norm_weight = weight.view(),
                              .positions = positions_.view(),
                              .inverse_frequencies = frequencies.view(),
                              .y = y.view(),
                              .head_dim = 48})
                  .ok());
  const std::vector<double> normed =
      rms_norm_reference(to_doubles(x.view()), to_doubles(weight.view()), 1e-6);
  EXPECT_LT(relative_error(y.view(), rope_reference(normed, positions_.span<int32_t>(),
                                                    frequencies.span<float>(), 48, 1.0)),
            kTolerance);
}

TEST_F(RopeTest, FusedEqualsTheTwoOpsBitForBit) {
  const Tensor x = random_tensor({5, 2 * 64}, DType::kF32, 4);
  const Tensor weight = random_tensor({64}, DType::kF32, 5);
  const Tensor frequencies = frequencies_of(8, 10000);
  Tensor fused({5, 128}, DType::kF32);
  Tensor apart({5, 128}, DType::kF32);
  const RopeArgs args{.x = x.view(),
                      .norm_weight = weight.view(),
                      .positions = positions_.view(),
                      .inverse_frequencies = frequencies.view(),
                      .y = fused.view(),
                      .head_dim = 64};
  ASSERT_TRUE(rope(context_, args).ok());
  const OpDef& norm_op = norm_ops()[0];
  const Attrs attrs{{"epsilon", 1e-6}};
  const std::array<TensorView, 2> inputs = {x.view(), weight.view()};
  const std::array<MutableTensorView, 1> outputs = {apart.view()};
  const ForwardContext forward;
  ASSERT_TRUE(norm_op.launch(context_, {inputs, outputs, attrs, forward, {}}).ok());
  ASSERT_TRUE(rope(context_, {.x = apart.view(),
                              .positions = positions_.view(),
                              .inverse_frequencies = frequencies.view(),
                              .y = apart.view(),
                              .head_dim = 64})
                  .ok());
  EXPECT_TRUE(testing::same_bits(fused.view(), apart.view()));
}

TEST_F(RopeTest, NamesHeadsThatDoNotFit) {
  const Tensor x({5, 64}, DType::kF32);
  const Tensor frequencies = frequencies_of(40, 10000);
  Tensor y({5, 64}, DType::kF32);
  EXPECT_EQ(rope(context_, {.x = x.view(),
                            .positions = positions_.view(),
                            .inverse_frequencies = frequencies.view(),
                            .y = y.view(),
                            .head_dim = 64})
                .message(),
            "rope: heads of 64 channels, 40 rotated pairs from channel 0, rows of 64");
  const Tensor few = frequencies_of(8, 10000);
  EXPECT_EQ(rope(context_, {.x = x.view(),
                            .norm_weight = {},
                            .positions = positions_.view(),
                            .inverse_frequencies = few.view(),
                            .y = y.view(),
                            .head_dim = 64,
                            .first_channel = 49})
                .message(),
            "rope: heads of 64 channels, 8 rotated pairs from channel 49, rows of 64");
}

}  // namespace
}  // namespace heddle::ops

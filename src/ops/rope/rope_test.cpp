// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope.h"

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/norm/rms_norm.h"
#include "ops/norm/rms_norm_reference.h"
#include "ops/registry.h"
#include "ops/rope/rope_reference.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

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

class RopeTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) positions_here_ = upload(positions_);
  }

  // Fills what does not depend on the case.
  RopeArgs args_of(const DeviceTensor& x, const DeviceTensor& frequencies, DeviceTensor& y,
                   int64_t head_dim) {
    return {.x = x.view(),
            .norm_weight = {},
            .positions = positions_here_.view(),
            .inverse_frequencies = frequencies.view(),
            .y = y.view(),
            .head_dim = head_dim};
  }

  Tensor positions_ = positions_of({0, 1, 2, 5000, 262143});
  DeviceTensor positions_here_;
};

HEDDLE_ON_EVERY_DEVICE(RopeTest);

TEST_P(RopeTest, RotatesTheFirstChannelsOfEveryHeadAndPassesTheRest) {
  struct Case {
    int64_t num_heads, D, half;
  };

  for (const DType dtype : activation_dtypes()) {
    for (const auto& [num_heads, D, half] :
         {Case{3, 32, 4}, Case{2, 256, 32}, Case{1, 6, 3}, Case{4, 128, 64}, Case{19, 8, 4}}) {
      SCOPED_TRACE(
          fmt::format("{}, N = {}, D = {}, R/2 = {}", to_string(dtype), num_heads, D, half));
      const Tensor x = random_tensor({5, num_heads * D}, dtype, 1);
      const Tensor frequencies = frequencies_of(half, 10000);
      DeviceTensor y = poisoned({5, num_heads * D}, dtype);
      const DeviceTensor x_here = upload(x), frequencies_here = upload(frequencies);
      RopeArgs args = args_of(x_here, frequencies_here, y, D);
      args.factor = 1.25f;
      ASSERT_TRUE(rope(context(), args).ok());
      EXPECT_LT(relative_error(download(y).view(),
                               rope_reference(to_doubles(x.view()), positions_.span<int32_t>(),
                                              frequencies.span<float>(), D, 1.25)),
                kTolerance + rounding_of(dtype));
    }
  }
}

TEST_P(RopeTest, RotatesChannelsInTheMiddleOfAHeadInHalvesOrInPairs) {
  struct Case {
    int64_t num_heads, D, first, half;
  };

  for (const auto& [num_heads, D, first, half] :
       {Case{4, 24, 16, 4}, Case{1, 64, 0, 32}, Case{2, 192, 128, 32}, Case{3, 11, 2, 3}}) {
    for (const bool interleaved : {false, true}) {
      SCOPED_TRACE(fmt::format("D = {}, first = {}, interleaved = {}", D, first, interleaved));
      const Tensor x = random_tensor({5, num_heads * D}, DType::kF32, 1);
      const Tensor frequencies = frequencies_of(half, 10000);
      DeviceTensor y = poisoned({5, num_heads * D}, DType::kF32);
      DeviceTensor x_here = upload(x);
      const DeviceTensor frequencies_here = upload(frequencies);
      RopeArgs args = args_of(x_here, frequencies_here, y, D);
      args.first_channel = first;
      args.interleaved = interleaved;
      args.factor = 0.75f;
      ASSERT_TRUE(rope(context(), args).ok());
      const Tensor got = download(y);
      EXPECT_LT(
          relative_error(got.view(),
                         rope_reference(to_doubles(x.view()), positions_.span<int32_t>(),
                                        frequencies.span<float>(), D, 0.75, first, interleaved)),
          kTolerance);
      args.y = x_here.view();  // in place
      ASSERT_TRUE(rope(context(), args).ok());
      EXPECT_TRUE(testing::same_bits(download(x_here).view(), got.view()));
    }
  }
}

TEST_P(RopeTest, TurnsLongSequencesByTheSecondTable) {
  constexpr int64_t kHalf = 5, kHeadDim = 12;
  const Tensor x = random_tensor({5, 2 * kHeadDim}, DType::kF32, 1);
  const DeviceTensor x_here = upload(x);
  const Tensor tables[] = {frequencies_of(kHalf, 10000), frequencies_of(kHalf, 300)};
  Tensor both({2, kHalf}, DType::kF32);
  Tensor by_one[2];
  for (const size_t table : {0, 1}) {
    std::ranges::copy(tables[table].span<float>(),
                      both.span<float>().begin() + static_cast<std::ptrdiff_t>(table) * kHalf);
    const DeviceTensor frequencies = upload(tables[table]);
    DeviceTensor y = poisoned({5, 2 * kHeadDim}, DType::kF32);
    ASSERT_TRUE(rope(context(), args_of(x_here, frequencies, y, kHeadDim)).ok());
    by_one[table] = download(y);
  }
  const DeviceTensor both_here = upload(both), first_here = upload(tables[0]);
  Tensor positions = positions_of({0, 1, 2, 5000, 262143});
  for (const size_t row : {1, 4}) positions.span<int32_t>()[row] |= kLongRope;
  positions_here_ = upload(positions);
  for (const DeviceTensor* const frequencies : {&both_here, &first_here}) {
    DeviceTensor y = poisoned({5, 2 * kHeadDim}, DType::kF32);
    ASSERT_TRUE(rope(context(), args_of(x_here, *frequencies, y, kHeadDim)).ok());
    const Tensor got = download(y);
    for (size_t i = 0; i < got.span<float>().size(); ++i) {
      const size_t row = i / (2 * kHeadDim);
      const bool is_long = frequencies == &both_here && (row == 1 || row == 4);
      EXPECT_EQ(got.span<float>()[i], by_one[is_long ? 1 : 0].span<float>()[i]) << i;
    }
  }
}

TEST_P(RopeTest, NormalisesEachHeadFirstWhenItHasAWeight) {
  for (const DType dtype : activation_dtypes()) {
    const Tensor x = random_tensor({5, 3 * 48}, dtype, 2);
    const Tensor weight = random_tensor({48}, DType::kF32, 3);
    const Tensor frequencies = frequencies_of(6, 1e7);
    DeviceTensor y = poisoned({5, 3 * 48}, dtype);
    DeviceTensor x_here = upload(x);
    const DeviceTensor frequencies_here = upload(frequencies), weight_here = upload(weight);
    RopeArgs args = args_of(x_here, frequencies_here, y, 48);
    args.norm_weight = weight_here.view();
    ASSERT_TRUE(rope(context(), args).ok());
    const Tensor got = download(y);
    const std::vector<double> normed =
        rms_norm_reference(to_doubles(x.view()), to_doubles(weight.view()), 1e-6);
    EXPECT_LT(relative_error(got.view(), rope_reference(normed, positions_.span<int32_t>(),
                                                        frequencies.span<float>(), 48, 1.0)),
              kTolerance + rounding_of(dtype));
    args.y = x_here.view();  // in place
    ASSERT_TRUE(rope(context(), args).ok());
    EXPECT_TRUE(testing::same_bits(download(x_here).view(), got.view()));
  }
}

// Rows and columns of patches, and the three positions of a text with pictures: sections that stand
// side by side and such that alternate, of vectors that are full and not.
TEST_P(RopeTest, TurnsEachPairByItsAxis) {
  if (on_cuda()) GTEST_SKIP() << "there is no CUDA kernel";

  struct Case {
    int64_t num_heads, D;
    size_t num_axes;
    std::vector<int32_t> axes;
  };

  for (const auto& [num_heads, D, num_axes, axes] :
       {Case{3, 24, 2, {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}}, Case{2, 16, 3, {0, 1, 2, 0, 1, 2}},
        Case{1, 72, 2, std::vector<int32_t>(36, 1)}, Case{2, 40, 8, {7, 0, 3}}}) {
    SCOPED_TRACE(fmt::format("D = {}, {} axes", D, num_axes));
    const auto half = std::ssize(axes);
    Tensor positions({5, static_cast<int64_t>(num_axes)}, DType::kI32),
        axis_of({half}, DType::kI32);
    for (size_t i = 0; i < positions.span<int32_t>().size(); ++i) {
      positions.span<int32_t>()[i] = static_cast<int32_t>(i * 7919 % 331);
    }
    std::ranges::copy(axes, axis_of.span<int32_t>().begin());
    const Tensor x = random_tensor({5, num_heads * D}, DType::kF32, 1);
    const Tensor frequencies = frequencies_of(half, 10000);
    Tensor y({5, num_heads * D}, DType::kF32);
    testing::poison(y);
    RopeArgs args{.x = x.view(),
                  .norm_weight = {},
                  .positions = positions.view(),
                  .inverse_frequencies = frequencies.view(),
                  .y = y.view(),
                  .head_dim = D,
                  .factor = 1.25f,
                  .axes = axis_of.view()};
    ASSERT_TRUE(rope(context(), args).ok());
    EXPECT_LT(
        relative_error(
            y.view(), rope_reference(to_doubles(x.view()), positions.span<int32_t>(),
                                     frequencies.span<float>(), D, 1.25, 0, false, axes, num_axes)),
        kTolerance);
    // One position on all axes turns as that position does, bit for bit.
    for (size_t i = 0; i < positions.span<int32_t>().size(); ++i) {
      positions.span<int32_t>()[i] = positions_.span<int32_t>()[i / num_axes];
    }
    ASSERT_TRUE(rope(context(), args).ok());
    Tensor plain({5, num_heads * D}, DType::kF32);
    args.positions = positions_.view();
    args.axes = {};
    args.y = plain.view();
    ASSERT_TRUE(rope(context(), args).ok());
    EXPECT_TRUE(testing::same_bits(y.view(), plain.view()));
    axis_of.span<int32_t>()[1] = static_cast<int32_t>(num_axes);
    args.positions = positions.view();
    args.axes = axis_of.view();
    EXPECT_EQ(rope(context(), args).message(),
              fmt::format("rope: pair 1 turns by axis {} of {}", num_axes, num_axes));
  }
}

TEST_P(RopeTest, GivesARowTheSameBitsInEveryBatch) {
  const Tensor x = random_tensor({5, 2 * 40}, DType::kF32, 6);
  const DeviceTensor x_here = upload(x), frequencies = upload(frequencies_of(10, 10000));
  const DeviceTensor weight = upload(random_tensor({40}, DType::kF32, 7));
  DeviceTensor y = poisoned({5, 80}, DType::kF32);
  RopeArgs args = args_of(x_here, frequencies, y, 40);
  args.norm_weight = weight.view();
  ASSERT_TRUE(rope(context(), args).ok());
  const Tensor together = download(y);
  for (int64_t t = 0; t < 5; ++t) {
    DeviceTensor alone = poisoned({1, 80}, DType::kF32);
    args.x = TensorView(x_here.view().row<float>(t), DType::kF32, Shape{1, 80});
    args.positions = TensorView(positions_here_.view().as<int32_t>() + t, DType::kI32, Shape{1});
    args.y = alone.view();
    ASSERT_TRUE(rope(context(), args).ok());
    EXPECT_TRUE(testing::same_bits(download(alone).view(), TensorView(together.view().row<float>(t),
                                                                      DType::kF32, Shape{1, 80})));
  }
}

// On CUDA the norm of its own sums a group with a block, this one with a warp.
TEST_P(RopeTest, FusedEqualsTheTwoOpsBitForBit) {
  if (on_cuda()) GTEST_SKIP() << "holds on the CPU";
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
  ASSERT_TRUE(rope(context(), args).ok());
  const OpDef& norm_op = norm_ops()[0];
  const Attrs attrs{{"epsilon", 1e-6}};
  const std::array<TensorView, 2> inputs = {x.view(), weight.view()};
  const std::array<MutableTensorView, 1> outputs = {apart.view()};
  const ForwardContext forward;
  ASSERT_TRUE(norm_op.launch(context(), {inputs, outputs, attrs, forward, {}}).ok());
  ASSERT_TRUE(rope(context(), {.x = apart.view(),
                               .positions = positions_.view(),
                               .inverse_frequencies = frequencies.view(),
                               .y = apart.view(),
                               .head_dim = 64})
                  .ok());
  EXPECT_TRUE(testing::same_bits(fused.view(), apart.view()));
}

TEST_P(RopeTest, NamesHeadsThatDoNotFit) {
  const Tensor x({5, 64}, DType::kF32);
  const Tensor frequencies = frequencies_of(40, 10000);
  Tensor y({5, 64}, DType::kF32);
  EXPECT_EQ(rope(context(), {.x = x.view(),
                             .positions = positions_.view(),
                             .inverse_frequencies = frequencies.view(),
                             .y = y.view(),
                             .head_dim = 64})
                .message(),
            "rope: heads of 64 channels, 40 rotated pairs from channel 0, rows of 64");
  const Tensor few = frequencies_of(8, 10000);
  EXPECT_EQ(rope(context(), {.x = x.view(),
                             .norm_weight = {},
                             .positions = positions_.view(),
                             .inverse_frequencies = few.view(),
                             .y = y.view(),
                             .head_dim = 64,
                             .first_channel = 49})
                .message(),
            "rope: heads of 64 channels, 8 rotated pairs from channel 49, rows of 64");
}

TEST_P(RopeTest, ScalesByTheNumberOfContextsBeforeAPosition) {
  const Tensor positions = positions_of({0, 8191, 8192, 16384, 131072});
  const DeviceTensor here = upload(positions);
  DeviceTensor y = poisoned({5, 1}, DType::kF32);
  ASSERT_TRUE(position_scale(context(),
                             {.positions = here.view(), .y = y.view(), .beta = 0.1, .length = 8192})
                  .ok());
  const std::vector<double> want{1, 1, 1.06931472, 1.10986123, 1.28332133};
  EXPECT_LT(testing::relative_error(download(y).view(), want), 1e-7);
}

}  // namespace
}  // namespace heddle::ops

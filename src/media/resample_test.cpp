// SPDX-License-Identifier: Apache-2.0
#include "media/resample.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "media/image_fixture.h"

namespace heddle::media {
namespace {

using namespace testing;
using ::testing::ElementsAre;

constexpr auto kBicubic = ResampleFilter::kBicubic;
constexpr auto kBilinear = ResampleFilter::kBilinear;
constexpr auto kTorch = ResampleArithmetic::kTorch;
constexpr auto kPillow = ResampleArithmetic::kPillow;
constexpr auto kFloat = ResampleArithmetic::kFloat;

struct StoredResample {
  ImageSize from;
  ImageSize to;
  std::string_view sha256;
};

// Results of torch's kernel for bytes: test_picture() scaled with the bicubic filter. A hash is cut
// to its first 80 bits.
constexpr StoredResample kStored[] = {
    {{70, 93}, {84, 96}, "35b250f8857fc6bccd6b"},
    {{93, 70}, {56, 84}, "a73154d4f5cf9d8f20e2"},
    {{1, 7}, {1, 14}, "082f3a9cd8bd98bf38c5"},
    {{7, 1}, {28, 28}, "4fe9f82a6f5b7d9627c8"},
    {{1, 1}, {64, 64}, "68cc14a2a17b7f69e340"},
    {{64, 64}, {64, 64}, "a35c5ec1c0d4fb463503"},
    {{48, 200}, {32, 160}, "b846ff43c2ee9adf3fe1"},
    {{200, 48}, {96, 48}, "f28d1a96640309644bb3"},
    {{255, 254}, {128, 127}, "b6885ae2dac57aa9358a"},
    {{31, 33}, {32, 32}, "fd0a8d322ab0dd57c292"},
    {{100, 100}, {100, 50}, "e20cbc7ff6cc17d0e98c"},
    {{100, 100}, {50, 100}, "b46ecb86ac470affa23b"},
    {{768, 1024}, {756, 1036}, "fd079bce24451fef5266"},
    {{1080, 1920}, {1092, 1932}, "dab0b6110a79775d32de"},
    {{480, 640}, {416, 576}, "c03baf548fe6aea6171b"},
    {{54, 122}, {64, 128}, "34cb4ff86ada49b0f796"},
};

TEST(Resample, StoredPicturesAreEqualBitForBit) {
  for (const StoredResample& stored : kStored) {
    const Image picture = test_picture(stored.from.height, stored.from.width);
    const Image scaled = resample(picture, stored.to, kBicubic, kTorch);
    EXPECT_EQ(scaled.size, stored.to);
    EXPECT_EQ(hash_of(scaled).substr(0, 20), stored.sha256)
        << stored.from.height << " x " << stored.from.width;
  }
}

// Returns the shift, then the weights of the first output pixel.
std::vector<int32_t> first_weights(int64_t n, int64_t m, ResampleFilter filter = kBicubic) {
  const AxisWeights axis = axis_weights(n, m, filter);
  const IntegerWeights integers = integer_weights(axis, kTorch);
  std::vector<int32_t> result = {integers.shift};
  result.insert(result.end(), integers.weights.begin(), integers.weights.begin() + axis.count[0]);
  return result;
}

TEST(Resample, WeightsAreScaledToSixteenBits) {
  EXPECT_THAT(first_weights(93, 84), ElementsAre(15, 30105, 3335, -672));
  EXPECT_THAT(first_weights(93, 96), ElementsAre(14, 16509, -125));
  EXPECT_THAT(first_weights(1024, 756), ElementsAre(15, 24206, 10427, -1865));
  EXPECT_THAT(first_weights(1, 5), ElementsAre(14, 16384));  // a single weight of exactly 1
  EXPECT_THAT(first_weights(2, 1, kBilinear), ElementsAre(15, 16384, 16384));
  for (const int64_t n : {1, 2, 17, 93, 1024, 16384}) {
    for (const int64_t m : {1, 2, 31, 756, 5000}) {
      for (const ResampleFilter filter : {kBicubic, kBilinear}) {
        const IntegerWeights integers = integer_weights(axis_weights(n, m, filter), kTorch);
        const auto [least, most] = std::ranges::minmax(integers.weights);
        EXPECT_GE(least, -(1 << 15)) << n << " to " << m;
        EXPECT_LT(most, 1 << 15) << n << " to " << m;
      }
    }
  }
}

std::vector<int> scaled_row(const std::vector<uint8_t>& row, int64_t width, bool as_column,
                            ResampleFilter filter = kBicubic,
                            ResampleArithmetic arithmetic = kTorch) {
  const auto length = static_cast<int64_t>(row.size());
  Image image(as_column ? ImageSize{length, 1} : ImageSize{1, length});
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = row[i / 3];
  const Image scaled =
      resample(image, as_column ? ImageSize{width, 1} : ImageSize{1, width}, filter, arithmetic);
  std::vector<int> result;
  for (size_t i = 0; i < scaled.rgb.size(); i += 3) result.push_back(scaled.rgb[i]);
  return result;
}

TEST(Resample, RowsAndColumnsScaleAlike) {
  for (const bool as_column : {false, true}) {
    EXPECT_THAT(scaled_row({0, 100, 255}, 2, as_column), ElementsAre(29, 205));
    EXPECT_THAT(scaled_row({0, 255}, 4, as_column), ElementsAre(0, 53, 202, 255));
    EXPECT_THAT(scaled_row({7}, 3, as_column), ElementsAre(7, 7, 7));
  }
}

// kTorch in plain loops, one axis after the other.
Image scaled_plainly(const Image& image, ImageSize size, ResampleFilter filter) {
  const auto scaled_axis = [filter](const std::vector<uint8_t>& in, int64_t num_axes, int64_t n,
                                    int64_t m, int64_t stride) {
    const AxisWeights axis = axis_weights(n, m, filter);
    const IntegerWeights integers = integer_weights(axis, kTorch);
    std::vector<uint8_t> out;
    for (int64_t a = 0; a < num_axes; ++a) {
      for (size_t i = 0; i < static_cast<size_t>(m); ++i) {
        for (int64_t k = 0; k < stride; ++k) {
          int64_t sum = int64_t{1} << (integers.shift - 1);
          for (int64_t j = 0; j < axis.count[i]; ++j) {
            sum += integers.weights[i * static_cast<size_t>(axis.taps) + static_cast<size_t>(j)] *
                   in[static_cast<size_t>((a * n + axis.first[i] + j) * stride + k)];
          }
          out.push_back(static_cast<uint8_t>(std::clamp<int64_t>(sum >> integers.shift, 0, 255)));
        }
      }
    }
    return out;
  };
  Image result(size);
  result.rgb = image.rgb;
  if (size.width != image.size.width) {
    result.rgb = scaled_axis(result.rgb, image.size.height, image.size.width, size.width, 3);
  }
  if (size.height != image.size.height) {
    result.rgb = scaled_axis(result.rgb, 1, image.size.height, size.height, size.width * 3);
  }
  return result;
}

TEST(Resample, EveryInstructionSetGivesTheBytesOfPlainLoops) {
  struct AllTargets {
    ~AllTargets() { hwy::SetSupportedTargetsForTest(0); }
  } const after_this{};

  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const int64_t height : {1, 2, 5, 13, 40}) {
      for (const int64_t width : {1, 2, 3, 6, 21, 43}) {
        const Image picture = test_picture(height, width);
        for (const ImageSize to : {ImageSize{1, 1}, {7, 5}, {height, 64}, {33, width}, {90, 11}}) {
          for (const ResampleFilter filter : {kBicubic, kBilinear}) {
            ASSERT_EQ(resample(picture, to, filter, kTorch).rgb,
                      scaled_plainly(picture, to, filter).rgb)
                << fmt::format("{}: {} x {} to {} x {}", hwy::TargetName(target), height, width,
                               to.height, to.width);
          }
        }
      }
    }
  }
}

TEST(Resample, FloatsAreNearTheIntegers) {
  const ImageSize sizes[] = {{1, 1}, {1, 9}, {8, 1}, {5, 12}, {13, 7}, {16, 16}, {3, 20}};
  for (const ImageSize from : sizes) {
    const Image picture = test_picture(from.height, from.width);
    EXPECT_EQ(resample(picture, from, kBicubic, kFloat).rgb, picture.rgb);
    for (const ImageSize to : sizes) {
      for (const ResampleFilter filter : {kBicubic, kBilinear}) {
        const Image floats = resample(picture, to, filter, kFloat);
        const Image integers = resample(picture, to, filter, kTorch);
        // The bytes between the two passes are clamped. A cubic filter overshoots there, so the
        // results differ more.
        const int tolerance = filter == kBilinear ? 1 : 24;
        for (size_t i = 0; i < floats.rgb.size(); ++i) {
          ASSERT_LE(std::abs(floats.rgb[i] - integers.rgb[i]), tolerance)
              << fmt::format("{} x {} to {} x {}", from.height, from.width, to.height, to.width);
        }
      }
    }
  }
}

TEST(Resample, BilinearIsTheTriangle) {
  EXPECT_THAT(scaled_row({0, 255}, 4, false, kBilinear, kFloat), ElementsAre(0, 64, 191, 255));
  EXPECT_THAT(scaled_row({0, 0, 160, 0, 0}, 1, false, kBilinear, kFloat), ElementsAre(42));
}

TEST(Resample, PillowsWeightsDifferByOneLevelAtMost) {
  const Image picture = test_picture(70, 93);
  const Image torch = resample(picture, {84, 96}, kBicubic, kTorch);
  const Image pillow = resample(picture, {84, 96}, kBicubic, kPillow);
  int different = 0;
  for (size_t i = 0; i < torch.rgb.size(); ++i) {
    ASSERT_LE(std::abs(torch.rgb[i] - pillow.rgb[i]), 1);
    different += torch.rgb[i] != pillow.rgb[i] ? 1 : 0;
  }
  EXPECT_TRUE(different > 0 && different < 300) << different;
}

}  // namespace
}  // namespace heddle::media

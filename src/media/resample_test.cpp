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

// Of test_picture(), bicubic, as torch's kernel for bytes computes them.
constexpr StoredResample kStored[] = {
    {{70, 93}, {84, 96}, "35b250f8857fc6bccd6b76b54ef97394277da68df4b4d54d52893875e4b96b6a"},
    {{93, 70}, {56, 84}, "a73154d4f5cf9d8f20e2a88aa75ee59fd138ce29501ab5534c6484b36bfb7e96"},
    {{1, 7}, {1, 14}, "082f3a9cd8bd98bf38c5f419022577f0a78f211aa998e7c542d3cf2b9b7bb5ed"},
    {{7, 1}, {28, 28}, "4fe9f82a6f5b7d9627c80937d42802a1201d4b52f2b8c1e23970b04d4df56591"},
    {{1, 1}, {64, 64}, "68cc14a2a17b7f69e34094498fb80dda89b64424023e9899f8c4383e93a14abf"},
    {{64, 64}, {64, 64}, "a35c5ec1c0d4fb4635035c63f3019f8341bdfe8bb3a6a2a72623e824dc1774f4"},
    {{48, 200}, {32, 160}, "b846ff43c2ee9adf3fe1fc445e7a3b85f7bb2f9938b45b261e17d2832b5e0b51"},
    {{200, 48}, {96, 48}, "f28d1a96640309644bb3c20c647d13bae91d26cff1c9fb9b9c5d128120ef6222"},
    {{255, 254}, {128, 127}, "b6885ae2dac57aa9358a94ae7c2e9544e65f5b10cb72d9fceab2c4ef3348fd7f"},
    {{31, 33}, {32, 32}, "fd0a8d322ab0dd57c2925fdaf26fac72a037438d830b2aa066959af6f9a5b38d"},
    {{100, 100}, {100, 50}, "e20cbc7ff6cc17d0e98cd21862817a7524e438ff5debbf10369ff0e2ec242758"},
    {{100, 100}, {50, 100}, "b46ecb86ac470affa23bc0ca890d5c655c8a8a7875cc9aa676d0224685239e64"},
    {{768, 1024}, {756, 1036}, "fd079bce24451fef5266e88abe96f85f63bc1b5e9a96d2a53ff47d03829af0c9"},
    {{1080, 1920},
     {1092, 1932},
     "dab0b6110a79775d32ded01ccc6e81b194e51cb038d72cc8ea6d7f012b044141"},
    {{480, 640}, {416, 576}, "c03baf548fe6aea6171b7612734326e735be70beb354c8cab49e956992132d2e"},
    {{54, 122}, {64, 128}, "34cb4ff86ada49b0f7963513ca986d4a37491f00b27953a25f6494c4bbf94835"},
};

TEST(Resample, StoredPicturesAreEqualBitForBit) {
  for (const StoredResample& stored : kStored) {
    const Image picture = test_picture(stored.from.height, stored.from.width);
    const Image scaled = resample(picture, stored.to, kBicubic, kTorch);
    EXPECT_EQ(scaled.size, stored.to);
    EXPECT_EQ(hash_of(scaled), stored.sha256) << stored.from.height << " x " << stored.from.width;
  }
}

// The shift and the first output's weights.
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
  EXPECT_THAT(first_weights(1, 5), ElementsAre(14, 16384));  // a weight of exactly 1
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

std::vector<int> scaled_row(const std::vector<uint8_t>& row, int64_t width, bool as_column) {
  const auto length = static_cast<int64_t>(row.size());
  Image image(as_column ? ImageSize{length, 1} : ImageSize{1, length});
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = row[i / 3];
  const Image scaled =
      resample(image, as_column ? ImageSize{width, 1} : ImageSize{1, width}, kBicubic, kTorch);
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

// Plain loops over the definition in double.
Image resample_reference(const Image& image, ImageSize size, ResampleFilter filter) {
  const auto columns = axis_weights(image.size.height, size.height, filter);
  const auto rows = axis_weights(image.size.width, size.width, filter);
  const auto weight = [](const AxisWeights& axis, int64_t n, int64_t m, int64_t i, int64_t j) {
    if (n == m) return i == j ? 1.0 : 0.0;
    const int64_t first = axis.first[static_cast<size_t>(i)];
    if (j < first || j >= first + axis.count[static_cast<size_t>(i)]) return 0.0;
    return axis.weights[static_cast<size_t>(i * axis.taps + j - first)];
  };
  Image result(size);
  for (int64_t y = 0; y < size.height; ++y) {
    for (int64_t x = 0; x < size.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        double sum = 0;
        for (int64_t v = 0; v < image.size.height; ++v) {
          for (int64_t u = 0; u < image.size.width; ++u) {
            sum += weight(columns, image.size.height, size.height, y, v) *
                   weight(rows, image.size.width, size.width, x, u) * image.row(v)[3 * u + c];
          }
        }
        result.row(y)[3 * x + c] =
            static_cast<uint8_t>(std::nearbyint(std::clamp(sum, 0.0, 255.0)));
      }
    }
  }
  return result;
}

TEST(Resample, EveryArithmeticIsNearTheDefinition) {
  const ImageSize sizes[] = {{1, 1}, {1, 9}, {8, 1}, {5, 12}, {13, 7}, {16, 16}, {3, 20}};
  for (const ImageSize from : sizes) {
    const Image picture = test_picture(from.height, from.width);
    for (const ImageSize to : sizes) {
      for (const ResampleFilter filter : {kBicubic, kBilinear}) {
        const Image expected = resample_reference(picture, to, filter);
        for (const ResampleArithmetic arithmetic : {kTorch, kPillow, kFloat}) {
          const Image scaled = resample(picture, to, filter, arithmetic);
          // Bytes between the passes are clamped: a cubic filter overshoots there.
          const int tolerance = arithmetic == kFloat ? 1 : filter == kBilinear ? 2 : 24;
          int worst = 0;
          for (size_t i = 0; i < expected.rgb.size(); ++i) {
            worst = std::max(worst, std::abs(scaled.rgb[i] - expected.rgb[i]));
          }
          EXPECT_LE(worst, tolerance)
              << fmt::format("{} x {} to {} x {}", from.height, from.width, to.height, to.width);
        }
      }
    }
    EXPECT_EQ(resample(picture, from, kBicubic, kTorch).rgb, picture.rgb);
  }
}

TEST(Resample, PillowsWeightsDifferByOneLevelAtMost) {
  const Image picture = test_picture(70, 93);
  for (const ImageSize size : {ImageSize{84, 96}, ImageSize{33, 41}, ImageSize{64, 200}}) {
    const Image torch = resample(picture, size, kBicubic, kTorch);
    const Image pillow = resample(picture, size, kBicubic, kPillow);
    int64_t different = 0;
    for (size_t i = 0; i < torch.rgb.size(); ++i) {
      ASSERT_LE(std::abs(torch.rgb[i] - pillow.rgb[i]), 1);
      different += torch.rgb[i] != pillow.rgb[i] ? 1 : 0;
    }
    EXPECT_GT(different, 0);
    EXPECT_LT(different, static_cast<int64_t>(torch.rgb.size()) / 100);
  }
}

}  // namespace
}  // namespace heddle::media

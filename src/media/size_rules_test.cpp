// SPDX-License-Identifier: Apache-2.0
#include "media/size_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::media {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct SizeCase {
  const char* name;
  SizeRule rule;
  ImageSize picture;
  ImageSize content;
  ImageSize canvas = content;
};

constexpr SmartResize kQwen25{28, 3136, 12'845'056};
constexpr SmartResize kQwen3{32, 65'536, 16'777'216};
constexpr SmartResize kClassDefault{32, 3136, 1'003'520};
constexpr SmartResize kMiniMax{28, 3136, 451'584};
constexpr BudgetSearch kGlm{28, 2, 16, 8000};
constexpr NeverEnlarge kKimi{14, 2, 16'384, 512};

const SizeCase kSizes[] = {
    {"Qwen2.5-VL", kQwen25, {768, 1024}, {756, 1036}},
    {"Qwen2.5-VL", kQwen25, {1080, 1920}, {1092, 1932}},
    {"Qwen2.5-VL", kQwen25, {70, 93}, {56, 84}},
    {"Qwen2.5-VL", kQwen25, {4000, 6000}, {2912, 4368}},
    {"Qwen2.5-VL, half to even", kQwen25, {14 * 5, 14 * 7}, {56, 112}},
    {"Qwen2.5-VL, a side rounded to 0", kQwen25, {1, 200}, {28, 812}},
    {"Qwen2.5-VL, one pixel", kQwen25, {1, 1}, {56, 56}},
    {"Qwen3-VL", kQwen3, {768, 1024}, {768, 1024}},
    {"Qwen3-VL", kQwen3, {1080, 1920}, {1088, 1920}},
    {"Qwen3-VL", kQwen3, {70, 93}, {224, 320}},
    {"Qwen3-VL", kQwen3, {4000, 6000}, {3328, 4992}},
    {"class default", kClassDefault, {768, 1024}, {768, 1024}},
    {"class default", kClassDefault, {1080, 1920}, {736, 1312}},
    {"class default", kClassDefault, {70, 93}, {64, 96}},
    {"class default", kClassDefault, {4000, 6000}, {800, 1216}},
    {"MiniMax-M3", kMiniMax, {768, 1024}, {560, 756}},
    {"MiniMax-M3", kMiniMax, {1080, 1920}, {504, 896}},
    {"MiniMax-M3", kMiniMax, {70, 93}, {56, 84}},
    {"MiniMax-M3", kMiniMax, {4000, 6000}, {532, 812}},
    {"GLM-5 Next", kGlm, {768, 1024}, {768, 1024}, {784, 1036}},
    {"GLM-5 Next", kGlm, {60, 80}, {105, 140}, {112, 140}},
    {"GLM-5 Next", kGlm, {4000, 6000}, {2034, 3052}, {2044, 3052}},
    {"Kimi K2.5", kKimi, {768, 1024}, {768, 1024}, {784, 1036}},
    {"Kimi K2.5", kKimi, {3000, 4000}, {1554, 2073}, {1568, 2100}},
    {"Kimi K2.5, one pixel", kKimi, {1, 1}, {1, 1}, {28, 28}},
    {"Kimi K2.5, the side's limit", kKimi, {14, 16'000}, {6, 7168}, {28, 7168}},
    {"Gemma 4", AreaFit{16, 3, 70}, {768, 1024}, {336, 432}},
    {"Gemma 4", AreaFit{16, 3, 140}, {768, 1024}, {480, 624}},
    {"Gemma 4", AreaFit{16, 3, 280}, {768, 1024}, {672, 912}},
    {"Gemma 4", AreaFit{16, 3, 560}, {768, 1024}, {960, 1296}},
    {"Gemma 4", AreaFit{16, 3, 1120}, {768, 1024}, {1344, 1824}},
    {"Gemma 4, a thin one", AreaFit{16, 3, 280}, {3, 1000}, {48, 280 * 48}},
    {"Gemma 3", FixedSize{{896, 896}}, {800, 2000}, {896, 896}},
    {"Mistral 3", LongestEdge{1540, 28}, {768, 1024}, {784, 1036}},
    {"Mistral 3", LongestEdge{1024, 28}, {768, 1024}, {784, 1036}},
    {"Mistral 3", LongestEdge{1540, 28}, {1080, 1920}, {868, 1540}},
    {"Pixtral 12B", LongestEdge{1024, 16}, {768, 1024}, {768, 1024}},
};

TEST(SizeRules, GiveThePublishedSizes) {
  for (const SizeCase& one : kSizes) {
    SCOPED_TRACE(::testing::Message()
                 << one.name << " of " << one.picture.height << " x " << one.picture.width);
    const auto fitted = fit(one.rule, one.picture);
    ASSERT_TRUE(fitted.ok()) << fitted.error().message;
    EXPECT_TRUE(*fitted == (FittedSize{one.content, one.canvas}))
        << fitted->content.height << " x " << fitted->content.width;
  }
}

// For every picture the result is made of whole cells, has its content inside the canvas and stays
// within the bounds.
TEST(SizeRules, HoldForEverySize) {
  struct Bound {
    SizeRule rule;
    int64_t unit;
    int64_t max_pixels;
  };

  const Bound bounds[] = {{kQwen25, 28, 12'845'056},
                          {kQwen3, 32, 16'777'216},
                          {kGlm, 28, 8000 * 28 * 28},
                          {kKimi, 28, 16'384 * 196 * 3},
                          {AreaFit{16, 3, 280}, 48, 280 * 48 * 48},
                          {LongestEdge{1540, 28}, 28, 1540 * 1540}};
  const int64_t sides[] = {1, 2, 13, 27, 28, 29, 100, 511, 1540, 1541, 4097, 16'384};
  for (const Bound& bound : bounds) {
    int num_fitted = 0;
    for (const int64_t height : sides) {
      for (const int64_t width : sides) {
        SCOPED_TRACE(::testing::Message()
                     << bound.rule.index() << ": " << height << " x " << width);
        const auto fitted = fit(bound.rule, {height, width});
        if (!fitted.ok()) {
          EXPECT_GT(std::max(height, width), 100 * std::min(height, width));
          continue;
        }
        ++num_fitted;
        const auto& [content, canvas] = *fitted;
        EXPECT_TRUE(content.height >= 1 && content.width >= 1);
        EXPECT_TRUE(content.height <= canvas.height && content.width <= canvas.width);
        EXPECT_TRUE(canvas.height % bound.unit == 0 && canvas.width % bound.unit == 0);
        EXPECT_LE(canvas.pixels(), bound.max_pixels);
      }
    }
    EXPECT_GT(num_fitted, 90);
  }
}

TEST(SizeRules, RefusePicturesThatHaveNoSize) {
  const auto refused = [](const SizeRule& rule, ImageSize picture) {
    const auto fitted = fit(rule, picture);
    EXPECT_FALSE(fitted.ok());
    return fitted.error();
  };
  const MediaError thin = refused(kQwen3, {10, 2001});
  EXPECT_EQ(thin.fault, MediaFault::kAspectRatio);
  EXPECT_THAT(thin.message, HasSubstr("2001 x 10 pixels, and for this model one side may be"));
  EXPECT_TRUE(fit(kQwen3, {10, 2000}).ok());
  EXPECT_EQ(refused(LongestEdge{1024, 16}, {1, 2000}).fault, MediaFault::kTooSmall);
  EXPECT_EQ(refused(BudgetSearch{28, 2, 1, 16}, {1, 1000}).fault, MediaFault::kAspectRatio);
  EXPECT_EQ(refused(AreaFit{16, 3, 1}, {17, 17}).fault, MediaFault::kTooSmall);
}

TEST(SizeRules, PanAndScanCutsLongPictures) {
  const PanAndScan rule;
  EXPECT_THAT(
      crops_of(rule, {800, 2000}),
      ElementsAre(Crop{0, 0, {800, 667}}, Crop{0, 667, {800, 667}}, Crop{0, 1334, {800, 666}}));
  EXPECT_THAT(
      crops_of(rule, {2000, 800}),
      ElementsAre(Crop{0, 0, {667, 800}}, Crop{667, 0, {667, 800}}, Crop{1334, 0, {666, 800}}));
  EXPECT_THAT(crops_of(rule, {800, 900}), IsEmpty());  // the picture is nearly square
  EXPECT_THAT(crops_of(rule, {200, 900}), IsEmpty());  // the crops would be too small
  EXPECT_EQ(crops_of(rule, {800, 8000}).size(), 4u);
}

}  // namespace
}  // namespace heddle::media

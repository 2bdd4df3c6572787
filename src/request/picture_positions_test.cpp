// SPDX-License-Identifier: Apache-2.0
#include "request/picture_positions.h"

#include <array>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::request {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PicturePositions positions_of(std::vector<MediaSpan> spans) {
  auto positions = PicturePositions::create(std::move(spans));
  EXPECT_TRUE(positions.ok()) << positions.status().message();
  return positions.ok() ? std::move(*positions) : PicturePositions();
}

std::vector<int32_t> axis_of(const PicturePositions& positions, size_t axis, int64_t count) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(positions.at(i)[axis]);
  return values;
}

TEST(PicturePositions, OfTextAreItsIndicesOnAllAxes) {
  const PicturePositions positions;
  EXPECT_THAT(positions.at(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(positions.at(4711), ElementsAre(4711, 4711, 4711));
  EXPECT_EQ(positions.span_at(7), nullptr);
}

// Four text tokens, a picture of 2 x 3, three text tokens, a picture of 3 x 2, and five text
// tokens, the last of which is the first decoded token. transformers computes the same positions.
TEST(PicturePositions, OfTwoPicturesAreThoseOfTransformers) {
  const PicturePositions positions =
      positions_of({{.start = 4, .rows = 2, .columns = 3}, {.start = 13, .rows = 3, .columns = 2}});
  EXPECT_THAT(axis_of(positions, 0, 24), ElementsAre(0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 7, 8, 9, 10, 10,
                                                     10, 10, 10, 10, 13, 14, 15, 16, 17));
  EXPECT_THAT(axis_of(positions, 1, 24), ElementsAre(0, 1, 2, 3, 4, 4, 4, 5, 5, 5, 7, 8, 9, 10, 10,
                                                     11, 11, 12, 12, 13, 14, 15, 16, 17));
  EXPECT_THAT(axis_of(positions, 2, 24), ElementsAre(0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9, 10, 11,
                                                     10, 11, 10, 11, 13, 14, 15, 16, 17));
  EXPECT_EQ(positions.span_at(3), nullptr);
  EXPECT_EQ(positions.span_at(4), &positions.spans()[0]);
  EXPECT_EQ(positions.span_at(9), &positions.spans()[0]);
  EXPECT_EQ(positions.span_at(10), nullptr);
  EXPECT_EQ(positions.span_at(18), &positions.spans()[1]);
  EXPECT_EQ(positions.span_at(19), nullptr);
}

// Photographs of 1024 x 768 and 1920 x 1080 pixels in cells of 32.
TEST(PicturePositions, OfLargePicturesGoFarBackForTheTextBehindThem) {
  const PicturePositions positions =
      positions_of({{.start = 15, .rows = 24, .columns = 32},
                    {.start = 15 + 768 + 9, .rows = 34, .columns = 60}});
  constexpr int64_t kTokens = 15 + 768 + 9 + 2040 + 12;
  ASSERT_EQ(kTokens, 2844);
  EXPECT_THAT(positions.at(15), ElementsAre(15, 15, 15));
  EXPECT_THAT(positions.at(15 + 767), ElementsAre(15, 38, 46));
  EXPECT_THAT(positions.at(15 + 768), ElementsAre(47, 47, 47));
  EXPECT_THAT(positions.at(15 + 768 + 9), ElementsAre(56, 56, 56));
  EXPECT_THAT(positions.at(kTokens - 1), ElementsAre(127, 127, 127));
  EXPECT_THAT(positions.at(kTokens), ElementsAre(kTokens - 2716, 128, 128));
}

TEST(PicturePositions, OfPicturesSideBySideAndAtTheStart) {
  const PicturePositions positions =
      positions_of({{.rows = 1, .columns = 1}, {.start = 1, .rows = 1, .columns = 4}});
  EXPECT_THAT(axis_of(positions, 2, 6), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(axis_of(positions, 1, 6), ElementsAre(0, 1, 1, 1, 1, 5));
}

TEST(PicturePositions, RefusesSpansThatDoNotFollowEachOther) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const std::vector<MediaSpan>& spans : std::vector<std::vector<MediaSpan>>{
           {{.start = -1, .rows = 1, .columns = 1}},
           {{.start = 3, .rows = 0, .columns = 4}},
           {{.start = 3, .rows = 2, .columns = -4}},
           {{.start = 0, .rows = kHuge, .columns = kHuge}},
           {{.start = kHuge, .rows = 1, .columns = 2}},
           {{.start = 4, .rows = 2, .columns = 3}, {.start = 9, .rows = 1, .columns = 1}},
           {{.start = 9, .rows = 1, .columns = 1}, {.start = 4, .rows = 1, .columns = 1}}}) {
    EXPECT_THAT(PicturePositions::create(spans).status().message(), HasSubstr("does not follow"));
  }
}

}  // namespace
}  // namespace heddle::request

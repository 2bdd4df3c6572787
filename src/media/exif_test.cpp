// SPDX-License-Identifier: Apache-2.0
#include "media/exif.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "media/image_fixture.h"

namespace heddle::media {
namespace {

using namespace testing;
using ::testing::ElementsAre;

int orientation_of(const std::string& block) { return exif_orientation(bytes_of(block)); }

TEST(Exif, ReadsEitherByteOrder) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(orientation_of(exif_block(orientation)), orientation);
    EXPECT_EQ(orientation_of(exif_block(orientation, true)), orientation);
    EXPECT_EQ(orientation_of(std::string("Exif\0\0", 6) + exif_block(orientation)), orientation);
  }
}

TEST(Exif, BrokenBlocksAreUpright) {
  const std::string good = exif_block(6);
  for (size_t length = 0; length < 22; ++length)
    EXPECT_EQ(orientation_of(good.substr(0, length)), 1);
  for (const int value : {0, 9, 255, 65535}) EXPECT_EQ(orientation_of(exif_block(value)), 1);
  const auto changed = [&](size_t at, const std::string& bytes) {
    std::string block = good;
    return block.replace(at, bytes.size(), bytes);
  };
  EXPECT_EQ(orientation_of(changed(0, "IM")), 1);           // an unknown byte order
  EXPECT_EQ(orientation_of(changed(2, big(43, 2))), 1);     // the magic number of BigTIFF
  EXPECT_EQ(orientation_of(changed(4, big(~0u, 4))), 1);    // the directory is far outside the data
  EXPECT_EQ(orientation_of(changed(4, big(25, 4))), 1);     // the directory ends outside the data
  EXPECT_EQ(orientation_of(changed(12, big(4, 2))), 1);     // type LONG in place of SHORT
  EXPECT_EQ(orientation_of(changed(14, big(2, 4))), 1);     // the entry has two numbers
  EXPECT_EQ(orientation_of(changed(8, big(65535, 2))), 6);  // announces entries that do not exist
}

TEST(Exif, TurnsEveryWay) {
  // 1 2 3
  // 4 5 6
  Image image({.height = 2, .width = 3});
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>(1 + i / 3);
  const auto turned = [&](int orientation) {
    const Image result = turn_upright(image, orientation);
    std::string text;
    for (int64_t y = 0; y < result.size.height; ++y) {
      for (int64_t x = 0; x < result.size.width; ++x) {
        text += static_cast<char>('0' + result.row(y)[3 * x + 2]);
      }
      text += ' ';
    }
    return text;
  };
  EXPECT_EQ(turned(1), "123 456 ");
  EXPECT_EQ(turned(2), "321 654 ");
  EXPECT_EQ(turned(3), "654 321 ");
  EXPECT_EQ(turned(4), "456 123 ");
  EXPECT_EQ(turned(5), "14 25 36 ");
  EXPECT_EQ(turned(6), "41 52 63 ");
  EXPECT_EQ(turned(7), "63 52 41 ");
  EXPECT_EQ(turned(8), "36 25 14 ");
}

}  // namespace
}  // namespace heddle::media

// SPDX-License-Identifier: Apache-2.0
#include "media/prepare_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "media/image_fixture.h"

namespace heddle::media {
namespace {

using namespace testing;
using ::testing::HasSubstr;

class PreparePicture : public ::testing::Test {
 protected:
  MediaResult<PreparedPicture> prepare(const StopCheck& stop = {}) {
    return prepare_picture(bytes_of(file_), {}, {processor_, memory_, clock_}, stop);
  }

  const Image picture_ = test_picture(40, 60);
  std::string file_ = png_of(picture_, png_chunk("eXIf", exif_block(6)));
  const ImageProcessor processor_{
      {.size = NeverEnlarge{.patch = 4, .merge = 2, .max_patches = 64, .max_side_patches = 20},
       .patch = 4,
       .merge = 2}};
  MediaMemory memory_{1 << 20};
  ManualClock clock_;
};

TEST_F(PreparePicture, GivesPatchesAndKeepsTheirMemory) {
  {
    const auto prepared = prepare();
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    EXPECT_EQ(prepared->size, (ImageSize{60, 40}));
    const auto expected = processor_.process(*decode_image(bytes_of(file_), {}));
    ASSERT_EQ(prepared->patches.size(), 1u);
    EXPECT_EQ(prepared->patches[0].values, expected->front().values);
    EXPECT_EQ(memory_.used_bytes(), static_cast<int64_t>(expected->front().values.size()) * 4);
  }
  EXPECT_EQ(memory_.used_bytes(), 0);
}

TEST_F(PreparePicture, EndsWhenAskedOrLateAndReturnsItsMemory) {
  int calls = 0;
  EXPECT_EQ(prepare([&] { return ++calls == 5; }).error().fault, MediaFault::kCancelled);
  const auto late = prepare([&] {
    clock_.advance_seconds(1);
    return false;
  });
  EXPECT_EQ(late.error().fault, MediaFault::kTooExpensive);
  EXPECT_THAT(late.error().message, HasSubstr("takes longer than 10 s"));
  file_.resize(file_.size() - 20);
  EXPECT_EQ(prepare().error().fault, MediaFault::kDecodeFailed);
  EXPECT_EQ(memory_.used_bytes(), 0);
}

TEST_F(PreparePicture, IsRefusedByTheHeaderBeforeMemoryIsWaitedFor) {
  const auto all = memory_.acquire(1 << 20);
  file_ = png_file({.height = 1000, .width = 50'000, .rows = "none"});
  EXPECT_EQ(prepare().error().fault, MediaFault::kTooManyPixels);
  file_ = png_file({.height = 1000, .width = 1000, .rows = "none"});
  EXPECT_THAT(prepare().error().message, HasSubstr("pictures have 1048576 in all"));
}

}  // namespace
}  // namespace heddle::media

// SPDX-License-Identifier: Apache-2.0
#include "media/image_decoder.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/json_reader.h"
#include "media/exif.h"
#include "media/image_fixture.h"
#include "support/allocation_count.h"
#include "support/test_data.h"

namespace heddle::media {
namespace {

using namespace testing;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ImageSize kSmall{.height = 5, .width = 7};

Image decoded(const std::string& file, const DecodeOptions& options = {}) {
  auto image = decode_image(bytes_of(file), options);
  EXPECT_TRUE(image.ok()) << image.error().message;
  return image.ok() ? std::move(*image) : Image();
}

std::vector<uint8_t> pixels_of(const std::string& file, AlphaMode alpha = AlphaMode::kWhite) {
  return decoded(file, {.alpha = alpha}).rgb;
}

MediaError error_of(const std::string& file, const DecodeOptions& options = {},
                    const StopCheck& stop = {}) {
  const auto image = decode_image(bytes_of(file), options, stop);
  EXPECT_FALSE(image.ok());
  return image.error();
}

// Makes a file of each format. All have the same pixels, except for the loss of JPEG.
std::vector<std::pair<std::string, std::string>> files_of(const Image& picture) {
  return {{"PNG", png_of(picture)},
          {"interlaced PNG", png_of(picture, "", true)},
          {"WebP", webp_of(picture.size, picture.rgb)},
          {"JPEG", jpeg_of(picture.size, picture.rgb)},
          {"progressive JPEG", jpeg_of(picture.size, picture.rgb, {.progressive = true})}};
}

TEST(ImageDecoder, EveryFormatGivesThePixels) {
  for (const ImageSize size :
       {kSmall, ImageSize{1, 1}, ImageSize{1, 40}, ImageSize{33, 1}, ImageSize{17, 16}}) {
    const Image picture = test_picture(size.height, size.width);
    for (const auto& [name, file] : files_of(picture)) {
      SCOPED_TRACE(fmt::format("{} of {} x {}", name, size.width, size.height));
      const Image image = decoded(file);
      ASSERT_EQ(image.size, size);
      if (!name.ends_with("JPEG")) {
        EXPECT_EQ(image.rgb, picture.rgb);
        continue;
      }
      for (size_t i = 0; i < picture.rgb.size(); ++i) {
        // loss of the conversion to YCbCr and back
        EXPECT_LE(std::abs(image.rgb[i] - picture.rgb[i]), 3) << i;
      }
    }
  }
}

TEST(ImageDecoder, EveryDepthAndColourTypeOfPngBecomesRgb) {
  const auto grey = [](int bits, const std::string& row, int64_t width) {
    return pixels_of(
        png_file({.width = width, .bits = bits, .colour_type = 0, .rows = '\0' + row}));
  };
  EXPECT_THAT(grey(1, "\x40", 2), ElementsAre(0, 0, 0, 255, 255, 255));
  EXPECT_THAT(grey(2, "\x60", 2), ElementsAre(85, 85, 85, 170, 170, 170));
  EXPECT_THAT(grey(4, "\x1E", 2), ElementsAre(17, 17, 17, 238, 238, 238));
  EXPECT_THAT(grey(8, "\x1E", 1), ElementsAre(30, 30, 30));
  EXPECT_THAT(grey(16, "\x1E\xFF", 1), ElementsAre(30, 30, 30));  // the high byte, not rounded
  EXPECT_THAT(pixels_of(png_file({.bits = 16, .rows = std::string("\0\1\xFF\2\x80\3\0", 7)})),
              ElementsAre(1, 2, 3));
  const std::string palette = png_chunk("PLTE", "\x01\x02\x03\xF0\xF1\xF2");
  EXPECT_THAT(pixels_of(png_file({.width = 2,
                                  .bits = 1,
                                  .colour_type = 3,
                                  .rows = std::string("\0\x40", 2),
                                  .before = palette})),
              ElementsAre(1, 2, 3, 240, 241, 242));
}

TEST(ImageDecoder, AlphaIsPutOnWhiteOrDropped) {
  const std::string rgba("\x00\x64\xFF\x00\x00\x64\xFF\x80\x00\x64\xFF\xFF", 12);
  const std::vector<uint8_t> white = {255, 255, 255, 127, 177, 255, 0, 100, 255};
  const std::vector<uint8_t> plain = {0, 100, 255, 0, 100, 255, 0, 100, 255};
  const std::string png = png_file({.width = 3, .colour_type = 6, .rows = '\0' + rgba});
  EXPECT_EQ(pixels_of(png, AlphaMode::kWhite), white);
  EXPECT_EQ(pixels_of(png, AlphaMode::kDrop), plain);

  // A lossless WebP encoder discards the colour of pixels whose alpha is 0.
  const std::string webp = webp_of({1, 3}, {rgba.begin(), rgba.end()}, 4);
  EXPECT_EQ(pixels_of(webp, AlphaMode::kWhite), white);

  const std::string grey =
      png_file({.width = 2, .colour_type = 4, .rows = std::string("\0\x0A\x80\x0A\xFF", 5)});
  EXPECT_THAT(pixels_of(grey), ElementsAre(132, 132, 132, 10, 10, 10));
  // The tRNS chunk of a palette, of a grey level and of a colour.
  const std::string palette = png_file({.width = 2,
                                        .bits = 1,
                                        .colour_type = 3,
                                        .rows = std::string("\0\x40", 2),
                                        .before = png_chunk("PLTE", "\x01\x02\x03\xF0\xF1\xF2") +
                                                  png_chunk("tRNS", std::string(1, '\0'))});
  EXPECT_THAT(pixels_of(palette), ElementsAre(255, 255, 255, 240, 241, 242));
  EXPECT_THAT(pixels_of(palette, AlphaMode::kDrop), ElementsAre(1, 2, 3, 240, 241, 242));
  const std::string key = png_file({.width = 2,
                                    .rows = std::string("\0\1\2\3\1\2\4", 7),
                                    .before = png_chunk("tRNS", std::string("\0\1\0\2\0\3", 6))});
  EXPECT_THAT(pixels_of(key), ElementsAre(255, 255, 255, 1, 2, 4));
  EXPECT_THAT(pixels_of(key, AlphaMode::kDrop), ElementsAre(1, 2, 3, 1, 2, 4));
}

TEST(ImageDecoder, GreyAndCmykJpegBecomeRgb) {
  EXPECT_THAT(pixels_of(jpeg_of({8, 8}, std::vector<uint8_t>(64, 77), {.channels = 1})), Each(77));
  // The ink is stored inverted: 255 in each channel is white, and 0 in the fourth is black.
  std::vector<uint8_t> ink;
  for (int i = 0; i < 64; ++i) ink.insert(ink.end(), {100, 200, 255, 128});
  const Image image = decoded(jpeg_of({8, 8}, ink, {.channels = 4}));
  for (size_t i = 0; i < image.rgb.size(); ++i) {
    EXPECT_NEAR(image.rgb[i], std::vector<int>({50, 100, 128})[i % 3], 1) << i;
  }
}

TEST(ImageDecoder, TheFirstFrameOfAnAnimationIsDecoded) {
  const Image frame = test_picture(2, 3);
  const std::string place = little(1, 3) + little(2, 3) + little(2, 3) + little(1, 3) +
                            little(100, 3) + std::string(1, '\0');
  const std::string frames = riff_chunk("ANMF", place + webp_of(frame.size, frame.rgb).substr(12)) +
                             riff_chunk("ANMF", "nonsense");
  const std::string file = riff_file(vp8x_chunk(2, {8, 6}) + riff_chunk("ANIM", "123456") + frames);
  const auto header = read_image_header(bytes_of(file), {});
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_TRUE(header->animated);
  for (const auto& [alpha, ground] : {std::pair(AlphaMode::kWhite, 255), {AlphaMode::kDrop, 0}}) {
    const Image image = decoded(file, {.alpha = alpha});
    ASSERT_EQ(image.size, (ImageSize{8, 6}));
    for (int64_t y = 0; y < 8; ++y) {
      for (int64_t x = 0; x < 6; ++x) {
        const bool inside = y >= 4 && y < 6 && x >= 2 && x < 5;
        EXPECT_EQ(image.row(y)[3 * x], inside ? frame.row(y - 4)[3 * (x - 2)] : ground);
      }
    }
  }
  // A frame outside the canvas, and an animation without a frame.
  const std::string outside = riff_file(vp8x_chunk(2, {5, 6}) + frames);
  EXPECT_THAT(error_of(outside).message, HasSubstr("does not lie on the canvas"));
  EXPECT_THAT(error_of(riff_file(vp8x_chunk(2, {5, 6}))).message, HasSubstr("without a frame"));

  const Image picture = test_picture(5, 7);
  const std::string apng = png_of(picture, png_chunk("acTL", big(2, 4) + big(0, 4)));
  EXPECT_TRUE(read_image_header(bytes_of(apng), {})->animated);
  EXPECT_EQ(pixels_of(apng), picture.rgb);
}

TEST(ImageDecoder, PicturesAreTurnedUpright) {
  const Image picture = test_picture(5, 7);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string exif = exif_block(orientation, orientation % 2 == 0);
    const std::vector<std::pair<std::string, std::string>> files = {
        {"PNG", png_of(picture, png_chunk("eXIf", exif))},
        {"JPEG", jpeg_of(kSmall, picture.rgb, {.exif = exif})},
        {"WebP", webp_with_exif(kSmall, picture.rgb, exif)}};
    for (const auto& [name, file] : files) {
      SCOPED_TRACE(fmt::format("{}, orientation {}", name, orientation));
      const auto header = read_image_header(bytes_of(file), {});
      ASSERT_TRUE(header.ok()) << header.error().message;
      EXPECT_EQ(header->orientation, orientation);
      EXPECT_EQ(header->stored, kSmall);
      const Image stored = decoded(file, {.turn_upright = false});
      EXPECT_EQ(stored.size, kSmall);
      const Image upright = decoded(file);
      EXPECT_EQ(upright.size, header->upright());
      EXPECT_EQ(upright.rgb, turn_upright(stored, orientation).rgb);
    }
  }
}

TEST(ImageDecoder, OtherFormatsAreNamedAndRefused) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"GIF", "GIF89a\1\0\1\0"},
      {"BMP", "BM\1\2\3\4"},
      {"TIFF", std::string("II*\0\1\2", 6)},
      {"HEIF", std::string("\0\0\0\x18", 4) + "ftypheic\0\0"},
      {"AVIF", std::string("\0\0\0\x18", 4) + "ftypavif\0\0"},
      {"SVG", "\xEF\xBB\xBF \n<?xml version='1.0'?><svg/>"},
      {"PDF", "%PDF-1.7"},
      {"not known", "RIFF\1\2\3\4WAVE"},
      {"not known", ""},
      {"not known", "\xFF\xD8"},
  };
  for (const auto& [name, file] : files) {
    const MediaError error = error_of(file);
    EXPECT_EQ(to_string(error.fault), "unsupported_image_format") << name;
    EXPECT_THAT(error.message, HasSubstr(name));
    EXPECT_THAT(error.message, HasSubstr("send JPEG, PNG or WebP"));
  }
}

TEST(ImageDecoder, LimitsHoldBeforePixels) {
  for (const auto& [name, file] : files_of(test_picture(5, 7))) {
    const auto fault = [&](const MediaLimits& limits) { return error_of(file, {limits}).fault; };
    const auto bytes = static_cast<int64_t>(file.size());
    EXPECT_EQ(decoded(file, {{.max_bytes = bytes, .max_pixels = 35, .max_side = 7}}).size, kSmall);
    EXPECT_EQ(fault({.max_bytes = bytes - 1}), MediaFault::kTooManyBytes) << name;
    EXPECT_EQ(fault({.max_pixels = 34}), MediaFault::kTooManyPixels) << name;
    EXPECT_EQ(fault({.max_side = 6}), MediaFault::kTooManyPixels) << name;
    EXPECT_EQ(fault({.max_aspect = 1}), MediaFault::kAspectRatio) << name;
  }
}

// The header alone is enough to refuse these files. They do not contain the pixels that it
// announces.
TEST(ImageDecoder, HugePicturesAreRefusedByTheirHeader) {
  std::string jpeg = jpeg_of(kSmall, test_picture(5, 7).rgb);
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, big(60'000, 2) + big(60'000, 2));
  const std::vector<std::pair<std::string, std::string>> files = {
      {"PNG", png_file({.height = 60'000, .width = 60'000, .rows = "none"})},
      {"PNG of 2^32 - 1", png_file({.height = 0xFFFFFFFF, .width = 0xFFFFFFFF, .rows = "none"})},
      {"JPEG", jpeg},
      {"WebP", riff_file(vp8x_chunk(2, {16'000'000, 200}) + riff_chunk("ANMF", "nothing"))}};
  for (const auto& [name, file] : files) {
    const heddle::testing::PeakMemory memory;
    EXPECT_EQ(error_of(file).fault, MediaFault::kTooManyPixels) << name;
    if (heddle::testing::PeakMemory::supported()) {
      EXPECT_LT(memory.bytes(), 1 << 20) << name;
    }
  }
  const std::string nothing = png_file({.height = 0, .width = 3, .rows = "none"});
  EXPECT_EQ(error_of(nothing).fault, MediaFault::kDecodeFailed);
}

TEST(ImageDecoder, TextsInAPngAreNeverUnpacked) {
  const std::string zeros(size_t{16} << 20, '\0');
  const std::string packed = deflated(zeros);
  const std::string text("Comment\0\0", 9);
  const Image picture = test_picture(5, 7);
  std::string chunks = png_chunk("zTXt", text + packed) + png_chunk("iCCP", text + packed);
  for (int i = 0; i < 1000; ++i) chunks += png_chunk("tEXt", text) + png_chunk("vpAg", "unknown");
  const heddle::testing::PeakMemory memory;
  EXPECT_EQ(pixels_of(png_of(picture, chunks)), picture.rgb);
  if (heddle::testing::PeakMemory::supported()) {
    EXPECT_LT(memory.bytes(), 1 << 20);
  }
}

TEST(ImageDecoder, ScansOfAJpegAreCounted) {
  const Image picture = test_picture(5, 7);
  const std::string file = jpeg_of(kSmall, picture.rgb, {.progressive = true});
  const size_t first = file.find("\xFF\xDA");
  const size_t second = file.find("\xFF\xDA", first + 2);
  ASSERT_NE(second, std::string::npos);
  // Repeats the first scan. The tables that belong to the second scan may follow.
  std::string bomb = file.substr(0, first);
  for (int i = 0; i < 600; ++i) bomb += file.substr(first, file.find("\xFF\xC4", first) - first);
  bomb += file.substr(file.find("\xFF\xC4", first));
  const MediaError error = error_of(bomb);
  EXPECT_EQ(error.fault, MediaFault::kTooExpensive) << error.message;
  EXPECT_THAT(error.message, HasSubstr("more than 500 scans"));
  EXPECT_EQ(decoded(bomb, {.limits = {.max_scans = 700}}).size, kSmall);
}

TEST(ImageDecoder, AFileThatEndsEarlyIsAnErrorAndOneThatEndsLateIsNot) {
  const Image picture = test_picture(40, 50);
  for (const auto& [name, file] : files_of(picture)) {
    for (size_t i = 0; i < 64; ++i) {
      const size_t length = i * file.size() / 64;
      const MediaError error = error_of(file.substr(0, length));
      EXPECT_TRUE(error.fault == MediaFault::kDecodeFailed ||
                  (length < 16 && error.fault == MediaFault::kUnsupportedFormat))
          << name << " cut to " << length << " of " << file.size() << ": " << error.message;
    }
    EXPECT_EQ(error_of(file.substr(0, file.size() - 1)).fault, MediaFault::kDecodeFailed) << name;
    EXPECT_EQ(decoded(file + "and more").rgb, decoded(file).rgb) << name;
  }
}

TEST(ImageDecoder, AWrongChecksumOfPixelsIsAnError) {
  std::string file = png_of(test_picture(5, 7));
  const size_t after = file.rfind("IEND") - 5;  // the last byte of the checksum of IDAT
  file[after] = static_cast<char>(file[after] ^ 1);
  EXPECT_THAT(error_of(file).message, HasSubstr("the PNG file is broken: IDAT: CRC error"));
}

TEST(ImageDecoder, StopsWhenAsked) {
  const Image picture = test_picture(200, 200);
  for (const auto& [name, file] : files_of(picture)) {
    int most = 0;
    EXPECT_TRUE(decode_image(bytes_of(file), {}, [&most] { return ++most < 0; }).ok());
    ASSERT_GT(most, 0);
    for (const int allowed : {0, most / 2, most - 1}) {
      int calls = 0;
      const MediaError error = error_of(file, {}, [&] { return calls++ == allowed; });
      EXPECT_EQ(error.fault, MediaFault::kCancelled) << name << ": " << error.message;
      EXPECT_EQ(calls, allowed + 1) << name;
    }
  }
}

// Reads the recorded hashes of pictures that Pillow decoded with the same libraries.
nlohmann::json json_of(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_whole_file(path).value());
}

TEST(ImageVectors, DecodedPicturesEqualThoseOfPillow) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/images");
  const nlohmann::json vectors = json_of(folder / "vectors/decoded-sha256.json");
  int num_good = 0, num_broken = 0;
  for (const auto& [name, expected] : vectors.items()) {
    SCOPED_TRACE(name);
    const std::string file = read_whole_file(folder / name).value();
    for (const char* mode : {"drop", "white"}) {
      const AlphaMode alpha =
          std::string_view(mode) == "drop" ? AlphaMode::kDrop : AlphaMode::kWhite;
      const auto image = decode_image(bytes_of(file), {.alpha = alpha});
      // This file's pixels have a wrong checksum, which Pillow accepts.
      if (expected.contains("error") || name.ends_with("xcsn0g01.png")) {
        EXPECT_FALSE(image.ok());
        ++num_broken;
        continue;
      }
      ASSERT_TRUE(image.ok()) << image.error().message;
      EXPECT_EQ(image->size, (ImageSize{expected["size"][0], expected["size"][1]}));
      EXPECT_EQ(hash_of(*image), expected[mode].get<std::string>()) << mode;
      ++num_good;
    }
  }
  EXPECT_GE(num_good, 2 * 160);
  EXPECT_EQ(num_broken, 2 * 14);
}

TEST(ImageVectors, OrientedPicturesEqualThoseOfPillow) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/images/vectors");
  const nlohmann::json vectors = json_of(folder / "orientation-sha256.json");
  EXPECT_EQ(vectors.size(), 24u);
  for (const auto& [name, expected] : vectors.items()) {
    const auto image = decode_image(bytes_of(read_whole_file(folder / name).value()), {});
    ASSERT_TRUE(image.ok()) << name << ": " << image.error().message;
    EXPECT_EQ(hash_of(*image), expected["sha256"].get<std::string>()) << name;
  }
}

}  // namespace
}  // namespace heddle::media

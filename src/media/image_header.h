// SPDX-License-Identifier: Apache-2.0
// Reads a picture's header and checks the limits before any pixel is decoded. Reading a header
// allocates no memory and passes over the file at most once.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <span>

#include "media/image.h"
#include "media/image_format.h"
#include "media/media_error.h"

namespace heddle::media {

struct MediaLimits {
  int64_t max_bytes = int64_t{20} << 20;  // size of the encoded file
  int64_t max_pixels = 40'000'000;
  int64_t max_side = 16'384;
  int64_t max_aspect = 1000;  // the longer side divided by the shorter
  int64_t max_scans = 500;    // scans of a progressive JPEG; each is a pass over the picture
};

struct ImageHeader {
  ImageFormat format = ImageFormat::kUnknown;
  ImageSize stored;             // size of the picture in the file, before its orientation is
                                // applied
  int orientation = 1;          // EXIF orientation, 1 to 8; 1 if the file has none or a broken one
  bool animated = false;        // the file has several frames, of which only the first is decoded
  int64_t bytes_per_pixel = 0;  // memory that decoding needs for each pixel, the result included

  // The peak memory of decoding. Call it only for sizes within the limits: a file may claim a size
  // whose product overflows 63 bits.
  [[nodiscard]] int64_t decode_bytes() const { return stored.pixels() * bytes_per_pixel; }

  // The size after the orientation is applied, which is the size of the decoded picture.
  [[nodiscard]] ImageSize upright() const {
    return orientation >= 5 ? ImageSize{.height = stored.width, .width = stored.height} : stored;
  }
};

// Error: kTooManyBytes, kUnsupportedFormat, kTooManyPixels, kAspectRatio; kDecodeFailed for a
// header that is truncated or contradicts itself.
MediaResult<ImageHeader> read_image_header(std::span<const uint8_t> file,
                                           const MediaLimits& limits);

// Checks the decoded size of a base64 text before it is decoded. Error: kTooManyBytes.
MediaResult<int64_t> check_file_bytes(int64_t bytes, const MediaLimits& limits);

}  // namespace heddle::media

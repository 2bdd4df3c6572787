// SPDX-License-Identifier: Apache-2.0
// A picture's header and the limits that it must keep before any pixel is decoded. Reading one
// allocates nothing and walks over the file once at most.
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
  int64_t max_bytes = int64_t{20} << 20;  // of the file
  int64_t max_pixels = 40'000'000;
  int64_t max_side = 16'384;
  int64_t max_aspect = 1000;  // the longer side by the shorter
  int64_t max_scans = 500;    // of a progressive JPEG: each is a pass over the picture
};

struct ImageHeader {
  ImageFormat format = ImageFormat::kUnknown;
  ImageSize stored;             // as the file has it, before its orientation is applied
  int orientation = 1;          // as in EXIF, 1 to 8; 1 where the file has none or a broken one
  bool animated = false;        // only its first frame is decoded
  int64_t bytes_per_pixel = 0;  // of memory while it is decoded, the result included

  // The most memory that decoding takes at one time. Only within the limits: files may claim sizes
  // whose products leave 63 bits.
  [[nodiscard]] int64_t decode_bytes() const { return stored.pixels() * bytes_per_pixel; }

  // After the orientation: what the result of decoding has.
  [[nodiscard]] ImageSize upright() const {
    return orientation >= 5 ? ImageSize{.height = stored.width, .width = stored.height} : stored;
  }
};

// Error: kTooManyBytes, kUnsupportedFormat, kDecodeFailed for a header that is truncated or
// contradicts itself, kTooManyPixels, kAspectRatio.
MediaResult<ImageHeader> read_image_header(std::span<const uint8_t> file,
                                           const MediaLimits& limits);

// Error: kTooManyBytes. For texts that are not decoded yet.
MediaResult<int64_t> check_file_bytes(int64_t bytes, const MediaLimits& limits);

}  // namespace heddle::media

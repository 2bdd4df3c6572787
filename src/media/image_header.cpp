// SPDX-License-Identifier: Apache-2.0
#include "media/image_header.h"

#include <algorithm>

#include <fmt/format.h>

#include "media/picture_formats.h"

namespace heddle::media {

namespace {

MediaResult<ImageHeader> read_header(ImageFormat format, std::span<const uint8_t> file) {
  switch (format) {
    case ImageFormat::kPng:
      return read_png_header(file);
    case ImageFormat::kWebp:
      return read_webp_header(file);
    default:
      return read_jpeg_header(file);
  }
}

}  // namespace

MediaResult<int64_t> check_file_bytes(int64_t bytes, const MediaLimits& limits) {
  if (bytes <= limits.max_bytes) return bytes;
  return MediaError{MediaFault::kTooManyBytes,
                    fmt::format("the picture has {} bytes, the limit is {}; send a smaller file",
                                bytes, limits.max_bytes)};
}

MediaResult<ImageHeader> read_image_header(std::span<const uint8_t> file,
                                           const MediaLimits& limits) {
  const auto bytes = check_file_bytes(static_cast<int64_t>(file.size()), limits);
  if (!bytes.ok()) return bytes.error();
  const auto format = decodable_format_of(file);
  if (!format.ok()) return format.error();
  auto header = read_header(*format, file);
  if (!header.ok()) return header.error();
  header->format = *format;

  const auto [height, width] = header->stored;
  if (height < 1 || width < 1) {
    return MediaError{MediaFault::kDecodeFailed,
                      fmt::format("the {} file says that its picture has {} x {} pixels",
                                  to_string(*format), width, height)};
  }
  if (std::max(height, width) > limits.max_side || height * width > limits.max_pixels) {
    return MediaError{
        MediaFault::kTooManyPixels,
        fmt::format("the picture has {} x {} pixels, the limit is {} and {} a side; scale it down",
                    width, height, limits.max_pixels, limits.max_side)};
  }
  if (std::max(height, width) > limits.max_aspect * std::min(height, width)) {
    return MediaError{MediaFault::kAspectRatio,
                      fmt::format("the picture has {} x {} pixels, and one side may be at most {} "
                                  "times the other; crop it",
                                  width, height, limits.max_aspect)};
  }
  // turning the picture upright makes a copy of it
  if (header->orientation != 1) header->bytes_per_pixel += 3;
  return header;
}

}  // namespace heddle::media

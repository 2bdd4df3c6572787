// SPDX-License-Identifier: Apache-2.0
// The format of a picture by its first bytes.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "media/media_error.h"

namespace heddle::media {

// Only the first three are decoded. The others are recognised so that errors can name them,
// and to_string() has their names in this order.
enum class ImageFormat {
  kJpeg,
  kPng,
  kWebp,
  kGif,
  kBmp,
  kTiff,
  kHeif,  // HEIC and other pictures in HEIF containers
  kAvif,
  kSvg,  // or other XML
  kPdf,
  kUnknown,
};

[[nodiscard]] std::string_view to_string(ImageFormat format);

// Looks at most at the first 64 bytes.
[[nodiscard]] ImageFormat format_of(std::span<const uint8_t> file);

// One that is decoded here. Error: kUnsupportedFormat, naming the format and those that are.
MediaResult<ImageFormat> decodable_format_of(std::span<const uint8_t> file);

}  // namespace heddle::media

// SPDX-License-Identifier: Apache-2.0
// Recognises a picture's format by its first bytes.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "media/media_error.h"

namespace heddle::media {

// Only the first three formats are decoded. The others are recognised so that errors can name them.
// to_string() lists the names in this order.
enum class ImageFormat {
  kJpeg,
  kPng,
  kWebp,
  kGif,
  kBmp,
  kTiff,
  kHeif,  // HEIC and other pictures in HEIF containers
  kAvif,
  kSvg,  // SVG or any other XML
  kPdf,
  kUnknown,
};

[[nodiscard]] std::string_view to_string(ImageFormat format);

// Recognises a format by at most the first 64 bytes.
[[nodiscard]] ImageFormat format_of(std::span<const uint8_t> file);

// The format, if Heddle decodes it. Error: kUnsupportedFormat, naming the format and those that
// Heddle decodes.
MediaResult<ImageFormat> decodable_format_of(std::span<const uint8_t> file);

}  // namespace heddle::media

// SPDX-License-Identifier: Apache-2.0
#include "media/image_format.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace heddle::media {

namespace {

using std::string_view_literals::operator""sv;

struct Signature {
  size_t offset;
  std::string_view bytes;
  ImageFormat format;
};

// The first match is used, so AVIF's brands come before "ftyp" alone, which is any HEIF file.
constexpr Signature kSignatures[] = {
    {0, "\xFF\xD8\xFF"sv, ImageFormat::kJpeg},
    {0, "\x89PNG\r\n\x1A\n"sv, ImageFormat::kPng},
    {0, "GIF87a"sv, ImageFormat::kGif},
    {0, "GIF89a"sv, ImageFormat::kGif},
    {0, "BM"sv, ImageFormat::kBmp},
    {0, "II*\0"sv, ImageFormat::kTiff},
    {0, "MM\0*"sv, ImageFormat::kTiff},
    {0, "II+\0"sv, ImageFormat::kTiff},
    {0, "MM\0+"sv, ImageFormat::kTiff},
    {4, "ftypavif"sv, ImageFormat::kAvif},
    {4, "ftypavis"sv, ImageFormat::kAvif},
    {4, "ftyp"sv, ImageFormat::kHeif},
    {0, "%PDF-"sv, ImageFormat::kPdf},
};

}  // namespace

std::string_view to_string(ImageFormat format) {
  constexpr std::string_view kNames[] = {
      "JPEG", "PNG",    "WebP", "GIF", "BMP", "TIFF", "HEIF", "AVIF", "SVG or other XML",
      "PDF",  "unknown"};
  return kNames[static_cast<size_t>(format)];
}

ImageFormat format_of(std::span<const uint8_t> file) {
  constexpr size_t kMostLeading = 64;
  std::string_view text(reinterpret_cast<const char*>(file.data()),
                        std::min(file.size(), kMostLeading));
  if (text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP") {
    return ImageFormat::kWebp;
  }
  for (const Signature& signature : kSignatures) {
    if (text.size() > signature.offset &&
        text.substr(signature.offset).starts_with(signature.bytes)) {
      return signature.format;
    }
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text[0])) != 0) {
    text.remove_prefix(1);
  }
  return text.starts_with('<') ? ImageFormat::kSvg : ImageFormat::kUnknown;
}

MediaResult<ImageFormat> decodable_format_of(std::span<const uint8_t> file) {
  const ImageFormat format = format_of(file);
  if (format == ImageFormat::kJpeg || format == ImageFormat::kPng || format == ImageFormat::kWebp) {
    return format;
  }
  const std::string found =
      format != ImageFormat::kUnknown
          ? fmt::format("the picture's format is {}", to_string(format))
          : fmt::format("the picture's format is not known by its first bytes ({} bytes in all)",
                        file.size());
  return MediaError{MediaFault::kUnsupportedFormat, found + "; send JPEG, PNG or WebP instead"};
}

}  // namespace heddle::media

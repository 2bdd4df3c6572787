// SPDX-License-Identifier: Apache-2.0
#include "media/exif.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "media/byte_order.h"

namespace heddle::media {

int exif_orientation(std::span<const uint8_t> tiff) {
  using std::string_view_literals::operator""sv;
  if (has_bytes(tiff, 0, "Exif\0\0"sv)) tiff = tiff.subspan(6);
  const bool little = has_bytes(tiff, 0, "II*\0"sv);
  if (!little && !has_bytes(tiff, 0, "MM\0*"sv)) return 1;
  constexpr size_t kEntryBytes = 12;
  constexpr uint32_t kOrientationTag = 0x0112, kShort = 3;
  const auto number16 = [&](size_t at) { return little ? little16(tiff, at) : big16(tiff, at); };
  const auto number32 = [&](size_t at) { return little ? little32(tiff, at) : big32(tiff, at); };

  if (tiff.size() < 8) return 1;
  const size_t directory = number32(4);
  if (directory > tiff.size() || tiff.size() - directory < 2) return 1;
  const size_t room = (tiff.size() - directory - 2) / kEntryBytes;
  const size_t entries = std::min<size_t>(number16(directory), room);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (number16(entry) != kOrientationTag) continue;
    const uint32_t value = number16(entry + 8);
    const bool valid = number16(entry + 2) == kShort && number32(entry + 4) == 1 && value >= 1;
    return valid && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image turn_upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const auto [height, width] = image.size;
  const bool swapped = orientation >= 5;
  Image turned(swapped ? ImageSize{.height = width, .width = height} : image.size);
  // Whether the result's axes read the source from right to left, and from bottom to top.
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (int64_t y = 0; y < turned.size.height; ++y) {
    uint8_t* out = turned.row(y);
    for (int64_t x = 0; x < turned.size.width; ++x, out += 3) {
      int64_t source_y = swapped ? x : y;
      int64_t source_x = swapped ? y : x;
      if (from_bottom) source_y = height - 1 - source_y;
      if (from_right) source_x = width - 1 - source_x;
      std::copy_n(image.row(source_y) + source_x * 3, 3, out);
    }
  }
  return turned;
}

}  // namespace heddle::media

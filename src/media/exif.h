// SPDX-License-Identifier: Apache-2.0
// Reads the orientation from EXIF data, the only value that Heddle uses of it, and turns pictures
// upright.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <span>

#include "media/image.h"

namespace heddle::media {

// The orientation, 1 to 8, in a TIFF structure of either byte order, which may begin with
// "Exif\0\0". Only the first directory is read, at most its 65,535 entries. Returns 1 if there is
// no orientation or the structure is broken.
[[nodiscard]] int exif_orientation(std::span<const uint8_t> tiff);

// Orientation 1 changes nothing, 2 mirrors left to right, 3 turns by 180 degrees, 4 mirrors top to
// bottom, 5 transposes, 6 turns clockwise, 7 transposes along the other diagonal, 8 turns
// counter-clockwise.
[[nodiscard]] Image turn_upright(Image image, int orientation);

}  // namespace heddle::media

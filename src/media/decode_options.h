// SPDX-License-Identifier: Apache-2.0
// How a picture is decoded. These settings decide its pixels, so they belong to its identity.
#pragma once

#include <functional>

#include "media/image_header.h"

namespace heddle::media {

// Pixels that are not opaque: put on white, or their colour as it stands in the file.
enum class AlphaMode { kWhite, kDrop };

struct DecodeOptions {
  MediaLimits limits;
  AlphaMode alpha = AlphaMode::kWhite;
  bool turn_upright = true;  // by the file's EXIF orientation
};

// True: stop, nobody waits for the picture. Asked about once a row, on the decoding thread, while
// others may change what it reads. An empty one never stops.
using StopCheck = std::function<bool()>;

}  // namespace heddle::media

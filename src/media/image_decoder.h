// SPDX-License-Identifier: Apache-2.0
// Bytes of a JPEG, PNG or WebP file to a picture that stands upright, as Pillow decodes it with the
// same libraries: colour profiles and gamma are ignored, 16 bits become their high byte, grey is
// repeated, CMYK is converted by Pillow's integers. Of an animation the first frame counts.
//
// Limits come before memory for pixels, errors of the libraries end as a MediaError, and a file
// that ends early is an error. Bytes after the end of the picture are ignored.
//
// Cost: one pass over the file and ImageHeader::decode_bytes() of memory.
// Threading: a free function without state.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "media/image.h"
#include "media/image_header.h"
#include "media/media_error.h"

namespace heddle::media {

// Pixels that are not opaque: put on white, or their colour as it stands in the file.
enum class AlphaMode { kWhite, kDrop };

// These settings decide a picture's pixels, so they belong to its identity.
struct DecodeOptions {
  MediaLimits limits;
  AlphaMode alpha = AlphaMode::kWhite;
  bool turn_upright = true;  // by the file's EXIF orientation
};

// True: stop, nobody waits for the picture. Asked about once a row, on the decoding thread, while
// others may change what it reads. An empty one never stops.
using StopCheck = std::function<bool()>;

// Error: those of read_image_header(); kDecodeFailed, kTooExpensive, kCancelled.
MediaResult<Image> decode_image(std::span<const uint8_t> file, const DecodeOptions& options,
                                const StopCheck& stop = {});

}  // namespace heddle::media

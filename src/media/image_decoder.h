// SPDX-License-Identifier: Apache-2.0
// Decodes a JPEG, PNG or WebP file to an upright RGB picture, with the pixels that Pillow gives
// with the same libraries. Colour profiles and gamma are ignored. Channels of 16 bits keep their
// high byte. Grey is repeated for the three channels. CMYK is converted with Pillow's integer
// arithmetic. Only the first frame of an animation is decoded.
//
// Limits are checked before memory for pixels is allocated. Errors of the libraries are returned as
// a MediaError. A file that ends early is an error; bytes after the end of the picture are ignored.
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

// Pixels that are not opaque: kWhite blends them with white; kDrop keeps their colour and ignores
// alpha.
enum class AlphaMode { kWhite, kDrop };

// These settings change the pixels of a picture, so anything that identifies a decoded picture must
// include them.
struct DecodeOptions {
  MediaLimits limits;
  AlphaMode alpha = AlphaMode::kWhite;
  bool turn_upright = true;  // turns the picture by the file's EXIF orientation
};

// Returns true to stop decoding, because no caller waits for the picture any more. It is called
// about once a row on the decoding thread; other threads may change what it reads. An empty
// function never stops.
using StopCheck = std::function<bool()>;

// Error: those of read_image_header(); kDecodeFailed, kTooExpensive, kCancelled.
MediaResult<Image> decode_image(std::span<const uint8_t> file, const DecodeOptions& options,
                                const StopCheck& stop = {});

}  // namespace heddle::media

// SPDX-License-Identifier: Apache-2.0
// Bytes of a JPEG, PNG or WebP file to a picture that stands upright, as Pillow decodes it with the
// same libraries: colour profiles and gamma are ignored, 16 bits become their high byte, grey is
// repeated, CMYK is converted by Pillow's integers. Of an animation the first frame counts.
//
// Untrusted bytes: the header and its limits come before any memory for pixels, the libraries run
// under limits of their own, their errors end as a MediaError, and a file that ends early is an
// error, not a picture with a grey rest. Bytes after the end of the picture are ignored.
//
// Cost: one pass over the file and ImageHeader::decode_bytes of memory.
// Threading: a free function without state.
#pragma once

#include <cstdint>
#include <span>

#include "media/decode_options.h"
#include "media/image.h"
#include "media/media_error.h"

namespace heddle::media {

// Error: those of read_image_header(); kDecodeFailed, kTooExpensive, kCancelled.
MediaResult<Image> decode_image(std::span<const uint8_t> file, const DecodeOptions& options,
                                const StopCheck& stop = {});

}  // namespace heddle::media

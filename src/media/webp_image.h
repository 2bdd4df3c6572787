// SPDX-License-Identifier: Apache-2.0
// WebP files. See image_decoder.h for the contract.
//
// Lossy and lossless, with and without alpha. Of an animation the first frame is put on a canvas
// that is transparent, or black where alpha is dropped.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <span>

#include "media/decode_options.h"
#include "media/image.h"
#include "media/image_header.h"
#include "media/media_error.h"

namespace heddle::media {

// Size, orientation, animation and memory, from the file's own structure alone. Error:
// kDecodeFailed.
MediaResult<ImageHeader> read_webp_header(std::span<const uint8_t> file);

// As stored: not turned yet. `header` is what read_webp_header() said of this file, and within the
// limits.
MediaResult<Image> decode_webp(std::span<const uint8_t> file, const ImageHeader& header,
                               const DecodeOptions& options, const StopCheck& stop);

}  // namespace heddle::media

// SPDX-License-Identifier: Apache-2.0
// PNG files. See image_decoder.h for the contract.
//
// Interlaced files are handled; APNG counts as animated. Chunks other than IHDR, PLTE, tRNS, IDAT
// and IEND are skipped unread, texts and profiles among them: what they unpack to is never
// allocated.
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
MediaResult<ImageHeader> read_png_header(std::span<const uint8_t> file);

// As stored: not turned yet. `header` is what read_png_header() said of this file, and within the
// limits.
MediaResult<Image> decode_png(std::span<const uint8_t> file, const ImageHeader& header,
                              const DecodeOptions& options, const StopCheck& stop);

}  // namespace heddle::media

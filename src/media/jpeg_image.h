// SPDX-License-Identifier: Apache-2.0
// JPEG files. See image_decoder.h for the contract.
//
// Baseline, progressive and arithmetic coding; grey, YCbCr, RGB, CMYK and YCCK. The slow integer
// transform and smooth upsampling, which are libjpeg's defaults, decide the bits.
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
MediaResult<ImageHeader> read_jpeg_header(std::span<const uint8_t> file);

// As stored: not turned yet. `header` is what read_jpeg_header() said of this file, and within the
// limits.
MediaResult<Image> decode_jpeg(std::span<const uint8_t> file, const ImageHeader& header,
                               const DecodeOptions& options, const StopCheck& stop);

}  // namespace heddle::media

// SPDX-License-Identifier: Apache-2.0
// The decoder of each format; image_decoder.h has the contract.
//
//   PNG   Also interlaced; the first frame of APNG. Only the chunks IHDR, PLTE, tRNS, IDAT and
//         IEND are read, so a compressed text or profile cannot expand in memory.
//   JPEG  Baseline, progressive and arithmetic coding; grey, YCbCr, RGB, CMYK and YCCK. Pixels
//         depend on libjpeg's defaults: the slow integer transform and smooth upsampling.
//   WebP  Lossy and lossless, with and without alpha. The first frame of an animation is put on
//         a canvas that is transparent, or black if alpha is dropped.
//
// Headers are read without the libraries: size, orientation, animation, memory. Decoders return the
// picture as stored, before its orientation is applied. `header` must be the header of the same
// file and within the limits.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "media/image.h"
#include "media/image_decoder.h"
#include "media/image_header.h"
#include "media/media_error.h"

namespace heddle::media {

MediaResult<ImageHeader> read_png_header(std::span<const uint8_t> file);
MediaResult<ImageHeader> read_jpeg_header(std::span<const uint8_t> file);
MediaResult<ImageHeader> read_webp_header(std::span<const uint8_t> file);

MediaResult<Image> decode_png(std::span<const uint8_t> file, const ImageHeader& header,
                              const DecodeOptions& options, const StopCheck& stop);
MediaResult<Image> decode_jpeg(std::span<const uint8_t> file, const ImageHeader& header,
                               const DecodeOptions& options, const StopCheck& stop);
MediaResult<Image> decode_webp(std::span<const uint8_t> file, const ImageHeader& header,
                               const DecodeOptions& options, const StopCheck& stop);

// Converts RGBA to RGB in place. kWhite: every channel becomes
// (alpha * channel + (255 - alpha) * 255 + 127) / 255 in integers.
void remove_alpha(std::vector<uint8_t>& rgba, AlphaMode mode);

}  // namespace heddle::media

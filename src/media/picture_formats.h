// SPDX-License-Identifier: Apache-2.0
// The formats one by one; image_decoder.h has the contract.
//
//   PNG   interlaced files, too; of APNG the first frame. Chunks other than IHDR, PLTE, tRNS, IDAT
//   and
//         IEND are skipped unread: what texts and profiles unpack to is never allocated.
//   JPEG  baseline, progressive and arithmetic coding; grey, YCbCr, RGB, CMYK and YCCK. The slow
//         integer transform and smooth upsampling, libjpeg's defaults, decide the bits.
//   WebP  lossy and lossless, with and without alpha. Of an animation the first frame is put on a
//         canvas that is transparent, or black where alpha is dropped.
//
// Headers are read from the file's own structure alone: size, orientation, animation, memory.
// Decoding gives the picture as stored, not turned; `header` is of this file and within the limits.
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

// Packs RGBA to RGB in place. kWhite: every channel becomes
// (alpha * channel + (255 - alpha) * 255 + 127) / 255 in integers.
void remove_alpha(std::vector<uint8_t>& rgba, AlphaMode mode);

}  // namespace heddle::media

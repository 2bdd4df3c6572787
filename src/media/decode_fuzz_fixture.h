// SPDX-License-Identifier: Apache-2.0
// check_decode(): the property that the fuzz targets of all decoders check.
#pragma once

#include <cstdint>
#include <span>

#include "core/check.h"
#include "media/image_decoder.h"

namespace heddle::media::testing {

// Checks that any bytes end in an error or in a picture of the size that the header announces. The
// limits on pixels and on calls of `stop` keep every input fast.
inline void check_decode(ImageFormat format, std::span<const uint8_t> file) {
  if (format_of(file) != format) return;
  const DecodeOptions options{.limits = {.max_pixels = 1 << 18, .max_side = 4096, .max_scans = 20},
                              .alpha = file.size() % 2 == 0 ? AlphaMode::kWhite : AlphaMode::kDrop};
  const auto header = read_image_header(file, options.limits);
  int calls = 0;
  const auto image = decode_image(file, options, [&calls] { return ++calls > 20'000; });
  if (!image.ok()) return;
  HEDDLE_CHECK(header.ok());
  HEDDLE_CHECK(image->size == header->upright());
  HEDDLE_CHECK_EQ(static_cast<int64_t>(image->rgb.size()), image->size.pixels() * 3);
}

}  // namespace heddle::media::testing

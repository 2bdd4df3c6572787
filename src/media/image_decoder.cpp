// SPDX-License-Identifier: Apache-2.0
#include "media/image_decoder.h"

#include <utility>

#include "media/exif.h"
#include "media/picture_formats.h"

namespace heddle::media {

MediaResult<Image> decode_image(std::span<const uint8_t> file, const DecodeOptions& options,
                                const StopCheck& stop) {
  const auto header = read_image_header(file, options.limits);
  if (!header.ok()) return header.error();
  auto image = header->format == ImageFormat::kPng    ? decode_png(file, *header, options, stop)
               : header->format == ImageFormat::kWebp ? decode_webp(file, *header, options, stop)
                                                      : decode_jpeg(file, *header, options, stop);
  if (!image.ok() || !options.turn_upright) return image;
  return turn_upright(std::move(*image), header->orientation);
}

}  // namespace heddle::media

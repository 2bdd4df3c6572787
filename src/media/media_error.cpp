// SPDX-License-Identifier: Apache-2.0
#include "media/media_error.h"

#include <cstddef>

namespace heddle::media {

std::string_view to_string(MediaFault fault) {
  constexpr std::string_view kCodes[] = {"image_url_invalid",        "image_base64_invalid",
                                         "image_too_many_bytes",     "image_too_many_pixels",
                                         "image_aspect_ratio",       "image_too_small",
                                         "unsupported_image_format", "image_decode_failed",
                                         "image_too_expensive",      "image_cancelled"};
  return kCodes[static_cast<size_t>(fault)];
}

}  // namespace heddle::media

// SPDX-License-Identifier: Apache-2.0
#include "media/media_error.h"

namespace heddle::media {

std::string_view to_string(MediaFault fault) {
  switch (fault) {
    case MediaFault::kUrlInvalid:
      return "image_url_invalid";
    case MediaFault::kBase64Invalid:
      return "image_base64_invalid";
    case MediaFault::kTooManyBytes:
      return "image_too_many_bytes";
    case MediaFault::kTooManyPixels:
      return "image_too_many_pixels";
    case MediaFault::kAspectRatio:
      return "image_aspect_ratio";
    case MediaFault::kTooSmall:
      return "image_too_small";
    case MediaFault::kUnsupportedFormat:
      return "unsupported_image_format";
    case MediaFault::kDecodeFailed:
      return "image_decode_failed";
    case MediaFault::kTooExpensive:
      return "image_too_expensive";
    case MediaFault::kCancelled:
      return "image_cancelled";
  }
  return "image_decode_failed";
}

}  // namespace heddle::media

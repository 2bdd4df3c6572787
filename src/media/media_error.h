// SPDX-License-Identifier: Apache-2.0
// MediaError: the reason why a picture is refused. The codes of Status are too few, because APIs
// answer with different errors if a picture is too large, has an unknown format or is broken.
// Messages never contain bytes of the picture.
//
// Threading: values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace heddle::media {

// The possible reasons. to_string() lists the names in this order.
enum class MediaFault {
  kUrlInvalid,         // not a data URI
  kBase64Invalid,      // broken base64, in a data URI or as a bare text
  kTooManyBytes,       // the encoded file is too large
  kTooManyPixels,      // too many pixels in all or along one side
  kAspectRatio,        // one side exceeds the other by more than the model or the limit allows
  kTooSmall,           // the model's size rule scales the picture down to nothing
  kUnsupportedFormat,  // Heddle does not recognise the format or does not decode it
  kDecodeFailed,       // the file is truncated or broken
  kTooExpensive,       // decoding took too long or needs too much memory
  kCancelled,          // no caller waits for the picture any more
};

// The error code in API answers: "image_too_many_bytes".
[[nodiscard]] std::string_view to_string(MediaFault fault);

struct MediaError {
  MediaFault fault = MediaFault::kDecodeFailed;
  std::string message;
};

// Holds either a value or a MediaError.
template <typename T>
class [[nodiscard]] MediaResult {
 public:
  MediaResult(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  MediaResult(MediaError error)
      : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }

  [[nodiscard]] const MediaError& error() const { return error_; }

  // Only to be called if there is a value.
  [[nodiscard]] T& operator*() {
    HEDDLE_CHECK(ok());
    return *value_;
  }

  [[nodiscard]] const T& operator*() const {
    HEDDLE_CHECK(ok());
    return *value_;
  }

  [[nodiscard]] T* operator->() { return &**this; }

  [[nodiscard]] const T* operator->() const { return &**this; }

 private:
  MediaError error_;
  std::optional<T> value_;
};

}  // namespace heddle::media

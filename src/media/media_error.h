// SPDX-License-Identifier: Apache-2.0
// Why a picture is refused. A Status has too few codes: APIs answer a picture that is too large, of
// an unknown format or broken with different ones. Messages never contain bytes of the picture.
//
// Threading: values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace heddle::media {

// to_string() has their names in this order.
enum class MediaFault {
  kUrlInvalid,         // not a data URI
  kBase64Invalid,      // a data URI or a bare text whose base64 is broken
  kTooManyBytes,       // encoded bytes
  kTooManyPixels,      // pixels, or one side
  kAspectRatio,        // the sides differ by more than the model or the limit allows
  kTooSmall,           // the model's size rule leaves nothing of it
  kUnsupportedFormat,  // recognised, but not decoded here, or not recognised
  kDecodeFailed,       // truncated or broken
  kTooExpensive,       // took longer, or needs more memory, than a picture may
  kCancelled,          // nobody waits for it any more
};

// The code that APIs show: "image_too_many_bytes".
[[nodiscard]] std::string_view to_string(MediaFault fault);

struct MediaError {
  MediaFault fault = MediaFault::kDecodeFailed;
  std::string message;
};

// A value or the error that says why there is none.
template <typename T>
class [[nodiscard]] MediaResult {
 public:
  MediaResult(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  MediaResult(MediaError error)
      : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }

  [[nodiscard]] const MediaError& error() const { return error_; }

  // There must be a value.
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

// SPDX-License-Identifier: Apache-2.0
// MediaSpan: the run of placeholder tokens that a picture takes in a sequence.
//
// Threading: values.
#pragma once

#include <cstdint>

namespace heddle::request {

struct MediaSpan {
  int64_t start = 0;      // index of its first token in the sequence
  int64_t rows = 0;       // tokens of the picture from top to bottom
  int64_t columns = 0;    // tokens of the picture from left to right
  int64_t image = 0;      // index of the picture among those of the request
  int64_t first_row = 0;  // feature row of the first token; the next tokens have the next rows

  [[nodiscard]] int64_t count() const { return rows * columns; }

  [[nodiscard]] int64_t end() const { return start + count(); }

  friend bool operator==(const MediaSpan&, const MediaSpan&) = default;
};

}  // namespace heddle::request

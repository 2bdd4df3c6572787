// SPDX-License-Identifier: Apache-2.0
// Image: a decoded picture. Rows from the top, pixels of three bytes: red, green, blue. Nothing
// else of the file is needed after decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::media {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;

  [[nodiscard]] int64_t pixels() const { return height * width; }

  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

struct Image {
  ImageSize size;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  Image() = default;

  explicit Image(ImageSize shape)
      : size(shape), rgb(static_cast<size_t>(shape.height * shape.width * 3)) {}

  [[nodiscard]] uint8_t* row(int64_t y) { return rgb.data() + y * size.width * 3; }

  [[nodiscard]] const uint8_t* row(int64_t y) const { return rgb.data() + y * size.width * 3; }
};

}  // namespace heddle::media

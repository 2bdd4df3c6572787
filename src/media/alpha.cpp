// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "media/picture_formats.h"

namespace heddle::media {

void remove_alpha(std::vector<uint8_t>& rgba, AlphaMode mode) {
  const size_t pixels = rgba.size() / 4;
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t* const in = rgba.data() + 4 * i;
    uint8_t* const out = rgba.data() + 3 * i;
    const int alpha = mode == AlphaMode::kDrop ? 255 : in[3];
    for (int c = 0; c < 3; ++c) {
      out[c] = static_cast<uint8_t>((alpha * in[c] + (255 - alpha) * 255 + 127) / 255);
    }
  }
  rgba.resize(3 * pixels);
}

}  // namespace heddle::media

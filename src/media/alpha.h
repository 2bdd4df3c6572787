// SPDX-License-Identifier: Apache-2.0
// Transparency: four bytes a pixel become three.
//
// Threading: a free function without state.
#pragma once

#include <cstdint>
#include <vector>

#include "media/decode_options.h"

namespace heddle::media {

// Packs RGBA, in place, and drops the rest of the vector. kWhite: every channel becomes
// (alpha * channel + (255 - alpha) * 255 + 127) / 255 in integers.
void remove_alpha(std::vector<uint8_t>& rgba, AlphaMode mode);

}  // namespace heddle::media

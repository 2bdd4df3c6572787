// SPDX-License-Identifier: Apache-2.0
#include "media/pixel_values.h"

namespace heddle::media {

PixelValues::PixelValues(const Normalisation& normalisation) {
  const bool both = normalisation.rescale && normalisation.normalise;
  const auto inverse = static_cast<float>(1.0 / normalisation.rescale_factor);
  const auto factor = static_cast<float>(normalisation.rescale_factor);
  for (size_t c = 0; c < table_.size(); ++c) {
    auto mean = static_cast<float>(normalisation.mean[c]);
    auto deviation = static_cast<float>(normalisation.deviation[c]);
    if (both) {
      mean *= inverse;
      deviation *= inverse;
    }
    for (size_t v = 0; v < table_[c].size(); ++v) {
      auto value = static_cast<float>(v);
      if (normalisation.normalise) {
        value = (value - mean) / deviation;
      } else if (normalisation.rescale) {
        value *= factor;
      }
      table_[c][v] = value;
    }
  }
}

}  // namespace heddle::media

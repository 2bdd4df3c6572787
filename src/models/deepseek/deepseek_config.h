// SPDX-License-Identifier: Apache-2.0
// DeepSeekConfig: the keys of config.json that only DeepSeek has.
//
// Threading: values.
#pragma once

#include <cstdint>

namespace heddle::models {

struct DeepSeekConfig {
  int64_t num_nextn_predict_layers = 0;  // number of draft layers, which are stored after the other
                                         // layers

  bool operator==(const DeepSeekConfig&) const = default;
};

}  // namespace heddle::models

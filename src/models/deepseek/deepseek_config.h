// SPDX-License-Identifier: Apache-2.0
// DeepSeekConfig: the keys of DeepSeek's own.
//
// Threading: values.
#pragma once

#include <cstdint>

namespace heddle::models {

struct DeepSeekConfig {
  int64_t num_nextn_predict_layers = 0;  // draft layers, stored after the others

  bool operator==(const DeepSeekConfig&) const = default;
};

}  // namespace heddle::models

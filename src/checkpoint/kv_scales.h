// SPDX-License-Identifier: Apache-2.0
// The scales that checkpoints have for 8-bit KV caches: what a stored number of a layer's keys, or
// of its values, is multiplied by. Tools spell them in five ways; below an attention module, the
// first one there is counts:
//
//   k_scale, v_scale                         compressed-tensors
//   k_proj.k_scale, v_proj.v_scale           ModelOpt
//   attn.k_scale, attn.v_scale
//   kv_scale                                 one for both
//   k_proj.output_scale, v_proj.output_scale
//
// Threading: values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

struct KvScales {
  float k = 1;
  float v = 1;

  bool operator==(const KvScales&) const = default;
};

struct StoredKvScales {
  std::vector<KvScales> layers;      // as many as modules; 1 where there is none to use
  std::vector<std::string> missing;  // "the keys of model.layers.0.self_attn": those that are 1
};

// Whether a stored tensor is such a scale.
[[nodiscard]] bool is_kv_scale(std::string_view tensor);

// `modules` are hub names with the dot: "model.layers.0.self_attn.". A scale that is 0 or negative
// was never calibrated and counts as missing. A generator of weights has none, and none is missing.
// Error: kInvalidArgument for a scale of more than one number or of a dtype that is not F32, BF16
// or F16; kDataLoss for one that is not finite. Both name the tensor.
Result<StoredKvScales> read_kv_scales(const WeightSource& source,
                                      std::span<const std::string> modules);

}  // namespace heddle::checkpoint

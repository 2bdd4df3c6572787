// SPDX-License-Identifier: Apache-2.0
// The scales that checkpoints have for 8-bit KV caches. A layer has one for its keys and one for
// its values; stored numbers are multiplied by it. Tools spell the names in five ways, listed here
// without the attention module's prefix; the first spelling that exists is used:
//
//   k_scale, v_scale                         compressed-tensors
//   k_proj.k_scale, v_proj.v_scale           ModelOpt
//   attn.k_scale, attn.v_scale
//   kv_scale                                 one for keys and values
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
  std::vector<KvScales> layers;      // one element per module; an absent scale is 1
  std::vector<std::string> missing;  // descriptions of absent scales, for which 1 is used: "the
                                     // keys of model.layers.0.self_attn"
};

// Whether the name is that of a scale of an 8-bit KV cache.
[[nodiscard]] bool is_kv_scale(std::string_view tensor);

// Reads the scales. `modules` are hub names with the dot: "model.layers.0.self_attn.". A scale that
// is 0 or negative was never calibrated and counts as missing. A generator of weights has no
// scales, and none are reported as missing. Error: kInvalidArgument for a scale of more than one
// number or of a dtype that is not F32, BF16 or F16; kDataLoss for one that is not finite. Both
// name the tensor.
Result<StoredKvScales> read_kv_scales(const WeightSource& source,
                                      std::span<const std::string> modules);

}  // namespace heddle::checkpoint

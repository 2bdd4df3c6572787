// SPDX-License-Identifier: Apache-2.0
// The names of the constants through which a graph reads the adapters of a step's rows. A runner
// offers them in addition to a model's weights. linear() then adds the products of
// ops/gemm/adapter_product.h to its layer. S is the number of adapter slots, R the largest rank; P
// is the number of modules that the weight [N, K] joins.
//
//   "layers.3.qkv_proj.lora_a"      [S, P * R, K]
//   "layers.3.qkv_proj.lora_b"      [S, N, R]
//   "layers.3.qkv_proj.lora_parts"  [S, N] int32
//   "lora_slots"        [rows of the largest step] int32: the slot of each row of the step
//   "lora_logit_slots"  [logit rows of the largest step] int32: the slot of each logit row
//   "lora_scales"       [S] fp32
//
// Threading: constants.
#pragma once

#include <string_view>

namespace heddle::models {

inline constexpr std::string_view kAdapterA = ".lora_a";
inline constexpr std::string_view kAdapterB = ".lora_b";
inline constexpr std::string_view kAdapterParts = ".lora_parts";
inline constexpr std::string_view kAdapterSlots = "lora_slots";
inline constexpr std::string_view kAdapterLogitSlots = "lora_logit_slots";
inline constexpr std::string_view kAdapterScales = "lora_scales";

}  // namespace heddle::models

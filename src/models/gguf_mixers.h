// SPDX-License-Identifier: Apache-2.0
// Translates GGUF names of the layers that several recurrent families share to the hub's names.
//
// Threading: thread-confined.
#pragma once

#include <string>

#include "models/gguf_translation.h"

namespace heddle::models {

// The order in which the converter stores the value heads of delta nets. The hub groups them by key
// head.
enum class GgufValueHeads : uint8_t {
  kAsInHub,
  kTiled,  // the first value head of each key head, then the second of each, and so on
};

// Translates gated delta nets that alternate with attention layers: layer_types, the sizes of
// heads, and all tensors of such layers except "ssm_ba".
void translate_delta_nets(GgufTranslation& gguf, GgufValueHeads order);

// Adds the tensors of Mamba-2 layers, whose hub names begin with `scope`: "mamba.".
void add_gguf_mamba2(GgufTranslation& gguf, const std::string& scope);

}  // namespace heddle::models

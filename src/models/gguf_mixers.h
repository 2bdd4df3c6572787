// SPDX-License-Identifier: Apache-2.0
// GGUF's names of the layers that recurrent families share, in the hub's words.
//
// Threading: thread-confined.
#pragma once

#include <string>

#include "models/gguf_translation.h"

namespace heddle::models {

// How the converter left the value heads of delta nets, which the hub has key head by key head.
enum class GgufValueHeads : uint8_t {
  kAsInHub,
  kTiled,  // the first of each key head, then the second of each, and so on
};

// Gated delta nets among layers of attention: layer_types, the sizes of heads, and all tensors of
// such layers but "ssm_ba".
void translate_delta_nets(GgufTranslation& gguf, GgufValueHeads order);

// The tensors of Mamba-2 layers below `scope`: "mamba.".
void add_gguf_mamba2(GgufTranslation& gguf, const std::string& scope);

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
// What keeps a config.json from being half understood. Some keys change what a model computes: a
// family that serves such a key reads it, and in the files of any other family it must be absent or
// have the value at which it changes nothing.
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

// Called when everybody has read what they know. Error, in the reader: kUnimplemented, "mlp_bias is
// true; Llama is served without it".
void refuse_unread_keys(ConfigReader& reader, const ModelConfig& config);

}  // namespace heddle::checkpoint

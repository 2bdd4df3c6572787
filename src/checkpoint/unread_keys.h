// SPDX-License-Identifier: Apache-2.0
// Refuses config.json files that would be half understood. Some keys change what a model computes:
// a family that serves such a key reads it, and in the files of any other family it must be absent
// or have the value at which it changes nothing.
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

// Called when all readers are done. Error, in the reader: kUnimplemented, "mlp_bias is
// true; Llama is served without it".
void refuse_unread_keys(ConfigReader& reader, const ModelConfig& config);

}  // namespace heddle::checkpoint

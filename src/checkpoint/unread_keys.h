// SPDX-License-Identifier: Apache-2.0
// Refuses config.json files of which a part would be ignored. Some keys change what a model
// computes. A family that supports such a key reads it. In the files of any other family the key
// must be absent or have the value at which it changes nothing.
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

// Checks the keys that no reader asked for; called after all of them have read. Error, stored in
// the reader: kUnimplemented, "mlp_bias is true; Llama is served without it".
void refuse_unread_keys(ConfigReader& reader, const ModelConfig& config);

}  // namespace heddle::checkpoint

// SPDX-License-Identifier: Apache-2.0
// The sampling defaults of a GGUF file as a generation_config.json.
#pragma once

#include <optional>
#include <string>

#include <heddle/status.h>

#include "checkpoint/gguf_header.h"

namespace heddle::checkpoint {

// The keys below general.sampling, which converters copy from the generation_config.json of the
// original model, by their names there: "temp" becomes temperature, "penalty_repeat"
// repetition_penalty. Settings that are off, and those of settings that are off, are left out. None
// without a key. Error: kDataLoss, naming key and value, for a value that is no number.
Result<std::optional<std::string>> gguf_generation_config(const GgufMetadata& metadata);

}  // namespace heddle::checkpoint

// SPDX-License-Identifier: Apache-2.0
// The sampling defaults of a GGUF file as a generation_config.json.
#pragma once

#include <optional>
#include <string>

#include <heddle/status.h>

#include "checkpoint/gguf_header.h"

namespace heddle::checkpoint {

// Returns the keys below general.sampling as the text of a generation_config.json; none if there
// are no such keys. Converters copy them from the original model's file. They get its names: "temp"
// becomes temperature, "penalty_repeat" repetition_penalty. Settings that are off are omitted, and
// so are the settings that depend on them. Error: kDataLoss, naming key and value, for a value that
// is no number.
Result<std::optional<std::string>> gguf_generation_config(const GgufMetadata& metadata);

}  // namespace heddle::checkpoint

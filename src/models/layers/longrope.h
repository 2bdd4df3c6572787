// SPDX-License-Identifier: Apache-2.0
// Reads the longrope settings of config.json, used by the Phi families: two lists of divisors for
// the rotary frequencies. Ding et al., "LongRoPE", arXiv:2402.13753. Errors are recorded in the
// reader.
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

// A reader for the object with the rotary parameters, which has two possible names. With `keep_own`
// it also finds keys outside that object.
checkpoint::ConfigReader rope_scaling_of(checkpoint::ConfigReader& reader, bool keep_own = false);

// Whether the type is longrope, under any of the names that files use for it.
bool has_longrope(checkpoint::ConfigReader& reader);

// Reads the settings. `config` must already have its sizes. The result has no long divisors if the
// original context is as long as the model's longest context.
checkpoint::RopeConfig read_longrope(checkpoint::ConfigReader& reader,
                                     const checkpoint::ModelConfig& config);

}  // namespace heddle::models

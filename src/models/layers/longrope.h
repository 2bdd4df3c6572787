// SPDX-License-Identifier: Apache-2.0
// Reads longrope of config.json: two lists of divisors of the rotary frequencies, which the Phi
// families have. Ding et al., "LongRoPE", arXiv:2402.13753. Errors stay in the reader.
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

// The object with the rotary parameters, under either name; with `keep_own` also the keys beside
// it.
checkpoint::ConfigReader rope_scaling_of(checkpoint::ConfigReader& reader, bool keep_own = false);

// Whether the type is longrope, by any of the names that files have for it.
bool has_longrope(checkpoint::ConfigReader& reader);

// The sizes of `config` have been read. There are no long divisors where the original context is
// the longest.
checkpoint::RopeConfig read_longrope(checkpoint::ConfigReader& reader,
                                     const checkpoint::ModelConfig& config);

}  // namespace heddle::models

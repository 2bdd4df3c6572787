// SPDX-License-Identifier: Apache-2.0
// Checks whether two checkpoints are of one model, so that the weights of one can replace those of
// the other in a running engine.
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

// OK if a program that was compiled for `used` also computes `other`. Ignores dtype and
// quantisation, which LoadedWeights::check_alike() compares by the weights in memory, and the ids
// of special tokens.
// Error: kInvalidArgument, naming the first setting that differs and, if it is a single number or
// name, its two values.
Status check_same_model(const ModelConfig& used, const ModelConfig& other);

// The error for a checkpoint that cannot replace the weights in use. It names the difference and
// says that the checkpoint can be served on its own.
Status differs_from_used(std::string_view difference);

}  // namespace heddle::checkpoint

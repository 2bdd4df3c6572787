// SPDX-License-Identifier: Apache-2.0
// Whether two checkpoints are of one model, so that the weights of one can take the place of the
// other's in a running engine.
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

// OK when a program that was compiled for `used` computes `other` just as well. Does not
// compare the dtype and the quantisation, which the weights in memory show better
// (LoadedWeights::check_alike()), nor the ids of special tokens.
// Error: kInvalidArgument, naming the first setting that differs, and where it is one number or
// name both its values.
Status check_same_model(const ModelConfig& used, const ModelConfig& other);

// The error for a checkpoint that cannot replace the weights in use: the difference, and that it
// can be served on its own.
Status differs_from_used(std::string_view difference);

}  // namespace heddle::checkpoint

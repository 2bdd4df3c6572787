// SPDX-License-Identifier: Apache-2.0
// Checks whether a number of ranks can share a model.
//
// Threading: a pure function.
#pragma once

#include "checkpoint/weight_slice.h"
#include "models/model.h"

namespace heddle::models {

// Errors, whose messages end with the legal numbers of ranks: kInvalidArgument, naming the first
// weight that the ranks do not divide or that leaves one rank without rows or columns;
// kUnimplemented, naming a part of the model that cannot be shared yet.
Status check_ranks(const Model& model, const checkpoint::Ranks& ranks);

}  // namespace heddle::models

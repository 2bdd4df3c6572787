// SPDX-License-Identifier: Apache-2.0
// Whether ranks can share a model.
//
// Threading: a pure function.
#pragma once

#include "checkpoint/weight_slice.h"
#include "models/model.h"

namespace heddle::models {

// Errors, which end with the legal numbers of ranks: kInvalidArgument naming the first weight that
// the ranks do not divide, or of which one of them would have nothing; kUnimplemented naming a part
// of the model that ranks do not share.
Status check_ranks(const Model& model, const checkpoint::Ranks& ranks);

}  // namespace heddle::models

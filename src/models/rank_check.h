// SPDX-License-Identifier: Apache-2.0
// Checks whether a number of ranks can share a model.
//
// Threading: pure functions.
#pragma once

#include <vector>

#include "checkpoint/weight_slice.h"
#include "models/model.h"

namespace heddle::models {

// For 1 to checkpoint::kMaxRanks ranks, at index count - 1: OK; kInvalidArgument, naming the first
// weight that the ranks do not divide or that leaves one rank without rows or columns; or
// kUnimplemented, naming a part of the model that cannot be shared yet.
[[nodiscard]] std::vector<Status> legal_ranks(const Model& model, bool exact);

// The error of legal_ranks() for `ranks`, or kInvalidArgument if there are too many. The message
// ends with the legal numbers of ranks.
Status check_ranks(const Model& model, const checkpoint::Ranks& ranks);

}  // namespace heddle::models

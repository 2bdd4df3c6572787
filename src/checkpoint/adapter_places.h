// SPDX-License-Identifier: Apache-2.0
// AdapterPlaces: finds the part of a base's weight map that a tensor of an adapter belongs to, by
// any of the names that adapters and files use for it.
//
// Threading: immutable once it is made. The weight map outlives it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include <heddle/status.h>

#include "checkpoint/adapter_files.h"
#include "checkpoint/weight_map.h"
#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

// The name of the embedding in every family's weight map.
inline constexpr std::string_view kEmbeddingWeight = "embed_tokens";

// Maps the several names of one tensor or module to one name. They differ where a text model is
// part of a larger one, and where transformers renames modules.
[[nodiscard]] std::string canonical_name(std::string_view name);

struct TensorPlace {
  const WeightSpec* spec = nullptr;  // null: the weight map does not have the tensor
  const HubPiece* piece = nullptr;
};

class AdapterPlaces {
 public:
  explicit AdapterPlaces(std::span<const WeightSpec> specs);

  // Null if the weight map does not have the tensor.
  [[nodiscard]] const TensorPlace* find(const std::string& name) const;

  // Checks that a base weight saved with the adapter equals the base's own, rounded to the narrower
  // of the two dtypes. A weight that the base has in no plain numbers is not compared. Error:
  // kInvalidArgument, naming both tensors.
  [[nodiscard]] Status check_saved(const AdapterTensor& saved, const WeightSource& base) const;

 private:
  std::unordered_map<std::string, TensorPlace> places_;
};

}  // namespace heddle::checkpoint

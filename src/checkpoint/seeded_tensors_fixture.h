// SPDX-License-Identifier: Apache-2.0
// seeded_tensors: the hub tensors of a model with random values, for comparisons with a reference.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>

#include "checkpoint/dummy_weights.h"
#include "checkpoint/weight_map.h"

namespace heddle::checkpoint::testing {

// Tensors for the first layout of every weight, in fp32. Values are large enough for biases, scores
// and gates to differ between tokens.
inline std::map<std::string, Tensor> seeded_tensors(std::span<const WeightSpec> specs) {
  std::map<std::string, Tensor> tensors;
  const DummyWeights source(11, DType::kF32);
  for (const WeightSpec& spec : specs) {
    for (const HubPiece& piece : spec.alternatives.front()) {
      const auto stored = source.find(
          {.name = piece.tensor.name, .shape = piece.tensor.shape, .initial = spec.initial});
      Tensor tensor(piece.tensor.shape, DType::kF32);
      source.read(*stored, 0, tensor.num_elements(), DType::kF32, tensor.view().data);
      if (spec.initial == Initial::kSmall) {
        for (float& value : tensor.span<float>()) value *= 10;
      }
      tensors.emplace(piece.tensor.name, std::move(tensor));
    }
  }
  return tensors;
}

}  // namespace heddle::checkpoint::testing

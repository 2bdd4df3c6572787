// SPDX-License-Identifier: Apache-2.0
// DraftModel: a small network beside a model that guesses how its texts go on, from the vectors
// that the model has computed anyway. It has one slot for each token, with keys and values of its
// own: slot p reads the vectors of the token at position p and the embedding of the token at p + 1,
// and guesses the token at p + 2. Where the model has not computed p, the slot reads what the slot
// before it gave.
//
// Its weights are named below kDraftScope; it finds the model's beside them ("embed_tokens").
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/request.h>

#include "checkpoint/weight_source.h"
#include "models/model.h"

namespace heddle::models {

inline constexpr const char* kDraftScope = "draft.";

struct DraftInputs {
  graph::Value ids;                   // [T] i32: the token at p + 1
  graph::Value positions;             // [T] i32: p
  std::vector<graph::Value> vectors;  // [T, H] activations each
};

struct DraftOutputs {
  graph::Value logits;  // [R, V] f32, of the token at p + 2; V: target_ids(), or the model's
  graph::Value vector;  // [R, H] activations: what the next slot reads
};

class DraftModel {
 public:
  virtual ~DraftModel() = default;

  [[nodiscard]] virtual std::vector<checkpoint::WeightSpec> weight_specs() const = 0;

  [[nodiscard]] virtual Result<DerivedWeights> derive_weights(
      const checkpoint::LoadedWeights& weights) const = 0;

  // Needs of its own layers.
  [[nodiscard]] virtual CacheNeeds cache_needs() const = 0;

  // The vectors of the model that it reads: indices of ForwardOutputs::hidden_states.
  [[nodiscard]] virtual std::vector<int64_t> hidden_states() const = 0;

  // The target model's token for each draft token, from the files; empty: equal ids. Error:
  // kDataLoss, naming the tensor.
  [[nodiscard]] virtual Result<std::vector<TokenId>> target_ids(
      const checkpoint::WeightSource& source) const {
    (void)source;
    return std::vector<TokenId>();
  }

  // Slots that read the model's vectors, one for each of hidden_states().
  virtual DraftOutputs build_first(graph::GraphBuilder& g, const DraftInputs& inputs) const = 0;

  // Slots that read the one vector of the slot before.
  virtual DraftOutputs build_next(graph::GraphBuilder& g, const DraftInputs& inputs) const = 0;
};

// Whether `source` has the network's weights, judged by its first tensor.
[[nodiscard]] bool has_weights_of(const DraftModel& model, const checkpoint::WeightSource& source);

}  // namespace heddle::models

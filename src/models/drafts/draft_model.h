// SPDX-License-Identifier: Apache-2.0
// DraftModel: a small network that drafts for a target model, from the hidden vectors that the
// target model computes anyway. It has one slot per token, with keys and values of its own: slot p
// reads the vectors of the token at position p and the embedding of the token at p + 1, and
// predicts the token at p + 2. If the target model has not computed position p, the slot reads the
// output vector of the slot before it.
//
// Its weights' names begin with kDraftScope. It also uses weights of the target model
// ("embed_tokens").
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/request.h>

#include "checkpoint/weight_source.h"
#include "models/model.h"

namespace heddle::models {

inline constexpr const char* kDraftScope = "draft.";

struct DraftInputs {
  graph::Value ids;                   // [T] i32: slot p reads the token at p + 1
  graph::Value positions;             // [T] i32: the positions p of the slots
  std::vector<graph::Value> vectors;  // [T, H] activations each: the target model's vectors, or the
                                      // one of the slot before
};

struct DraftOutputs {
  graph::Value logits;  // [R, V] f32, logits of the token at p + 2; V: target_ids().size(), or the
                        // target model's
  graph::Value vector;  // [R, H] activations: input of the next slot
};

class DraftModel {
 public:
  virtual ~DraftModel() = default;

  [[nodiscard]] virtual std::vector<checkpoint::WeightSpec> weight_specs() const = 0;

  [[nodiscard]] virtual Result<DerivedWeights> derive_weights(
      const checkpoint::LoadedWeights& weights) const = 0;

  // The memory that its own layers need.
  [[nodiscard]] virtual CacheNeeds cache_needs() const = 0;

  // The vectors of the target model that it reads, as indices into ForwardOutputs::hidden_states.
  [[nodiscard]] virtual std::vector<int64_t> hidden_states() const = 0;

  // For each draft token id, the target model's id, read from the files; empty: the ids are equal.
  // Error: kDataLoss, naming the tensor.
  [[nodiscard]] virtual Result<std::vector<TokenId>> target_ids(
      const checkpoint::WeightSource& source) const {
    (void)source;
    return std::vector<TokenId>();
  }

  // Builds slots that read the target model's vectors, one for each of hidden_states().
  virtual DraftOutputs build_first(graph::GraphBuilder& g, const DraftInputs& inputs) const = 0;

  // Builds slots that read the output vector of the slot before them.
  virtual DraftOutputs build_next(graph::GraphBuilder& g, const DraftInputs& inputs) const = 0;
};

// Whether `source` has the network's weights; checks only its first tensor.
[[nodiscard]] bool has_weights_of(const DraftModel& model, const checkpoint::WeightSource& source);

}  // namespace heddle::models

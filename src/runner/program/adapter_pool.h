// SPDX-License-Identifier: Apache-2.0
// AdapterPool: the LoRA adapters that a model's passes may add, each in a slot of its own, as the
// constants that the model's graph reads (models/layers/adapter_names.h). Only in host memory.
//
// The graph decides which weights have adapters: the arrays of a weight are made when the graph
// first looks for them. All slots have room for max_rank; an adapter of a lower rank is padded with
// zeros, and a slot without an adapter has zeros only.
//
// Threading: confined to the thread of the passes, but for load(): any thread may fill a slot that
// no row of a running step uses, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/adapter_linears.h"
#include "checkpoint/weight_map.h"
#include "core/tensor.h"
#include "ops/forward_context.h"

namespace heddle::runner {

class AdapterPool {
 public:
  struct Sizes {
    int64_t num_slots = 0;
    int64_t max_rank = 0;
    int64_t max_rows = 0;        // most rows of a step
    int64_t max_logit_rows = 0;  // most rows of a step with logits
    int64_t max_bytes = 0;       // most bytes of all arrays together
  };

  // `specs`: the weights of the model. At least one slot, rank and row (checked).
  AdapterPool(const Sizes& sizes, std::vector<checkpoint::WeightSpec> specs);

  // The constant of this name for a graph with adapters. Null for other names, and for weights to
  // which no product can be added: experts, embeddings. Addresses stay the same.
  const TensorView* find(std::string_view name);

  // Error: kResourceExhausted if the arrays that the graph has looked for exceed max_bytes.
  [[nodiscard]] const Status& status() const { return status_; }

  [[nodiscard]] int64_t num_bytes() const { return num_bytes_; }

  [[nodiscard]] int64_t num_slots() const { return sizes_.num_slots; }

  // Replaces the contents of a slot by an adapter's products. Error, and the slot has zeros only:
  // kInvalidArgument for a rank above max_rank; kUnimplemented for a weight that the graph does not
  // multiply by as it is.
  Status load(int32_t slot, std::span<const checkpoint::AdapterLinear> linears);

  // Sets the slots of all rows of the next step from those of its sequences, -1 for none. Error:
  // kInvalidArgument if there is not one for each sequence.
  Status lay_out(const ops::ForwardContext& batch, std::span<const int32_t> slots);

  // Sets the slots of the rows of the next run of the LM head alone.
  void lay_out_head(std::span<const int32_t> slots);

 private:
  // The arrays of one weight; see AdapterLinear, but for all slots.
  struct Arrays {
    int64_t num_parts = 0;
    Tensor a, b, parts;
  };

  const TensorView* make_arrays(const checkpoint::WeightSpec& spec, std::string_view ending);
  void clear(int32_t slot);
  Status fill(int32_t slot, const checkpoint::AdapterLinear& linear);

  Sizes sizes_;
  std::map<std::string, checkpoint::WeightSpec, std::less<>> specs_;
  std::map<std::string, Arrays, std::less<>> arrays_;  // by name of the weight
  Tensor slots_;
  Tensor logit_slots_;
  Tensor scales_;
  std::map<std::string, TensorView, std::less<>> views_;  // by name of the constant
  int64_t num_bytes_ = 0;
  Status status_;
};

}  // namespace heddle::runner

// SPDX-License-Identifier: Apache-2.0
// The updates of an adapter as low-rank products beside the model's linear weights, for
// ops/gemm/adapter_product.h. The weights themselves stay as they are, quantised ones too.
//
// The weight map says which rows of which weight of the model come from the tensor that the adapter
// names. The rows of B are placed likewise; each of the adapter's modules is a part of the weight.
//
// Threading: free function.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/adapter_files.h"
#include "checkpoint/weight_map.h"
#include "checkpoint/weight_source.h"
#include "core/tensor.h"

namespace heddle::checkpoint {

// The update of one weight [N, K], as one slot of the op's tensors. R is the highest rank of its P
// parts; the rest of a part of lower rank is 0.
struct AdapterLinear {
  std::string weight;  // WeightSpec::name
  std::string module;  // one of the adapter's modules, for messages
  Tensor a;            // [1, P * R, K] fp32
  Tensor b;            // [1, N, R] fp32, times the adapter's own scale; 0 in rows of no module
  Tensor parts;        // [1, N] int32
};

// `specs` is the weight map of `base`. Error: kUnimplemented, naming the module and heddle merge,
// for what is no update of a linear weight: experts, embeddings, DoRA, biases, tensors saved whole;
// kInvalidArgument, naming the module, if the weight map does not have it or has another shape, if
// its rank is not that of the configuration, if two modules change one row, or if a base weight
// saved with the adapter is not the base's.
Result<std::vector<AdapterLinear>> adapter_linears(const AdapterFiles& files,
                                                   std::span<const WeightSpec> specs,
                                                   const WeightSource& base);

// The error for a module that adapter_linears() does not take; `why` follows its name.
[[nodiscard]] Status can_only_be_merged(std::string_view module, std::string_view why);

}  // namespace heddle::checkpoint

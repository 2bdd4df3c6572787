// SPDX-License-Identifier: Apache-2.0
// PlacedAdapters: the stored tensors of a base model that adapters change, and their changes.
//
// An adapter's module may name a tensor in any of the layouts that the weight map lists. The base
// may store another layout of the same weight: one tensor for each expert, for example, while the
// adapter has one for all. The runs of the weight map then assign the rows of B to the base's
// tensors. Tensors that are not in the weight map are found by their own names.
//
// Threading: immutable once it is made.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/adapter_files.h"
#include "checkpoint/weight_change.h"
#include "checkpoint/weight_map.h"
#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

struct ScaledAdapter {
  AdapterFiles files;
  double scale = 1;  // factor on the adapter's own scale
};

class PlacedAdapters {
 public:
  // `specs` is the base's weight map. Memory: the adapters in fp32. Error: kInvalidArgument, naming
  // adapter, module and shapes, if the base has no such module or has it in another shape; also if
  // a change that cannot be summed (WeightChange::is_exclusive) has a scale or meets another
  // adapter's change. kUnimplemented if the base's weight is quantised.
  static Result<PlacedAdapters> place(std::vector<ScaledAdapter> adapters, const WeightSource& base,
                                      std::span<const WeightSpec> specs);

  // The changes by the names of the stored tensors that they apply to.
  [[nodiscard]] const std::map<std::string, WeightChange, std::less<>>& changes() const {
    return changes_;
  }

  // The notes of all adapters: AdapterFiles::notes().
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  class Placer;

  explicit PlacedAdapters(std::vector<ScaledAdapter> adapters) : adapters_(std::move(adapters)) {}

  std::vector<ScaledAdapter> adapters_;      // owners of the tensors that changes_ refers to
  std::vector<std::vector<float>> factors_;  // the numbers that the terms in changes_ point to
  std::map<std::string, WeightChange, std::less<>> changes_;
};

}  // namespace heddle::checkpoint

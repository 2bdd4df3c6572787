// SPDX-License-Identifier: Apache-2.0
// PlacedAdapters: which stored tensors of a base adapters change, and how.
//
// A module of an adapter names a tensor of the hub in any of the layouts that the weight map lists.
// Where the base stores another layout of the same weight, as one tensor for each expert instead of
// one for all, the rows of B follow the weight map's runs to the tensors that are there. Tensors
// that the weight map does not have are found by their own names.
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
  double scale = 1;  // multiplies the adapter's own
};

class PlacedAdapters {
 public:
  // `specs` is the base's weight map. Memory: the adapters in fp32. Error: kInvalidArgument, naming
  // adapter, module and shapes, where a module has no place in the base or other sizes, or where
  // adapters that are no sums are scaled or meet in a tensor; kUnimplemented where the base has it
  // quantised. Cost: of DoRA, reads the weights once.
  static Result<PlacedAdapters> place(std::vector<ScaledAdapter> adapters, const WeightSource& base,
                                      std::span<const WeightSpec> specs);

  // By the names of stored tensors.
  [[nodiscard]] const std::map<std::string, WeightChange, std::less<>>& changes() const {
    return changes_;
  }

  // AdapterFiles::notes() of all adapters.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  class Placer;

  explicit PlacedAdapters(std::vector<ScaledAdapter> adapters) : adapters_(std::move(adapters)) {}

  std::vector<ScaledAdapter> adapters_;      // changes_ has views of their tensors
  std::vector<std::vector<float>> factors_;  // of the terms; their memory stays
  std::map<std::string, WeightChange, std::less<>> changes_;
};

}  // namespace heddle::checkpoint

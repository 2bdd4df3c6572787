// SPDX-License-Identifier: Apache-2.0
// MergedWeights: the weights of a base with LoRA adapters added, as a WeightSource:
//
//   W + s B A, summed in double and rounded once to the dtype that is read
//
// A module of an adapter names a tensor of the hub in any of the layouts that the weight map lists.
// Where the base stores another layout of the same weight, as one tensor for each expert instead of
// one for all, the rows of B follow the weight map's runs to the tensors that are there. Tensors
// that the weight map does not have are found by their own names.
//
// Threading: immutable; const functions are thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/adapter_files.h"
#include "checkpoint/weight_map.h"
#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

struct ScaledAdapter {
  AdapterFiles files;
  double scale = 1;  // multiplies the adapter's own
};

class MergedWeights final : public WeightSource {
 public:
  // `specs` is the base's weight map. Memory: the adapters in fp32. Error: kInvalidArgument, naming
  // adapter, module and shapes, where a module has no place in the base or other sizes;
  // kUnimplemented where the base has it quantised.
  static Result<std::unique_ptr<const MergedWeights>> create(
      std::unique_ptr<const WeightSource> base, std::span<const WeightSpec> specs,
      std::span<const ScaledAdapter> adapters);

  ~MergedWeights() override;

  [[nodiscard]] std::optional<StoredWeight> find(const WeightRequest& request) const override;

  [[nodiscard]] std::vector<std::string_view> names() const override { return base_->names(); }

  [[nodiscard]] std::vector<std::string> notes() const override;

  [[nodiscard]] std::string unread_files() const override { return base_->unread_files(); }

  void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
            void* target) const override;

  // The stored tensors that the adapters change.
  [[nodiscard]] bool changes(std::string_view name) const { return terms_.contains(name); }

  [[nodiscard]] int64_t num_changed() const { return static_cast<int64_t>(terms_.size()); }

 private:
  struct Layout;
  struct Term;
  class Placer;

  explicit MergedWeights(std::unique_ptr<const WeightSource> base);

  std::unique_ptr<const WeightSource> base_;
  std::vector<std::vector<float>> factors_;  // of the terms; their memory stays
  std::map<std::string, std::vector<Term>, std::less<>> terms_;
  std::vector<std::string> notes_;
};

}  // namespace heddle::checkpoint

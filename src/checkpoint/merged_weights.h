// SPDX-License-Identifier: Apache-2.0
// MergedWeights: a WeightSource for the weights of a base with LoRA adapters added:
//
//   W + s B A, summed in double and rounded once to the dtype that is read
//
// With DoRA each row of the sum is scaled to the length that the adapter stores for it. Tensors
// that an adapter saves whole replace the base's. So do rows of an embedding that are saved for
// single tokens.
//
// Threading: immutable; const functions are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/placed_adapters.h"
#include "checkpoint/weight_map.h"
#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

class MergedWeights final : public WeightSource {
 public:
  // `specs` is the base's weight map. Error: as PlacedAdapters::place().
  static Result<std::unique_ptr<const MergedWeights>> create(
      std::unique_ptr<const WeightSource> base, std::span<const WeightSpec> specs,
      std::vector<ScaledAdapter> adapters);

  [[nodiscard]] std::optional<StoredWeight> find(const WeightRequest& request) const override;

  [[nodiscard]] std::vector<std::string_view> names() const override { return base_->names(); }

  [[nodiscard]] std::vector<std::string> notes() const override;

  void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
            void* target) const override;

  // Whether the adapters change this stored tensor.
  [[nodiscard]] bool changes(std::string_view name) const {
    return placed_.changes().contains(name);
  }

  // The number of stored tensors that the adapters change.
  [[nodiscard]] int64_t num_changed() const { return std::ssize(placed_.changes()); }

 private:
  MergedWeights(std::unique_ptr<const WeightSource> base, PlacedAdapters placed)
      : base_(std::move(base)), placed_(std::move(placed)) {}

  std::unique_ptr<const WeightSource> base_;
  PlacedAdapters placed_;
};

}  // namespace heddle::checkpoint

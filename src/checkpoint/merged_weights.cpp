// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/merged_weights.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace heddle::checkpoint {

Result<std::unique_ptr<const MergedWeights>> MergedWeights::create(
    std::unique_ptr<const WeightSource> base, std::span<const WeightSpec> specs,
    std::vector<ScaledAdapter> adapters) {
  HEDDLE_ASSIGN_OR_RETURN(PlacedAdapters placed,
                          PlacedAdapters::place(std::move(adapters), *base, specs));
  return std::unique_ptr<const MergedWeights>(
      new MergedWeights(std::move(base), std::move(placed)));
}

std::optional<StoredWeight> MergedWeights::find(const WeightRequest& request) const {
  std::optional<StoredWeight> stored = base_->find(request);
  if (stored && changes(stored->name)) stored->data = nullptr;
  return stored;
}

std::vector<std::string> MergedWeights::notes() const {
  std::vector<std::string> notes = base_->notes();
  std::ranges::move(placed_.notes(), std::back_inserter(notes));
  return notes;
}

void MergedWeights::read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
                         void* target) const {
  const StoredWeight stored =
      *base_->find({.name = weight.name, .shape = weight.shape, .initial = weight.initial});
  const auto change = placed_.changes().find(weight.name);
  if (change == placed_.changes().end()) return base_->read(stored, first, count, dtype, target);
  change->second.read(*base_, stored, first, count, dtype, target);
}

}  // namespace heddle::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "models/rank_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace heddle::models {

namespace {

// Checks that the ranks divide every weight, and that each rank has a part of every cut weight.
Status check_slices(const std::vector<checkpoint::WeightSpec>& specs,
                    const checkpoint::Ranks& ranks) {
  for (const checkpoint::WeightSpec& spec : specs) {
    HEDDLE_ASSIGN_OR_RETURN(const auto last, checkpoint::share_of(spec, ranks.count - 1, ranks));
    if (!last || last->size() > 0) continue;
    return invalid_argument(
        fmt::format("{}: {} rows or columns leave nothing for the last of {} "
                    "ranks",
                    spec.name, spec.shape[last->dimension], ranks.count));
  }
  return {};
}

}  // namespace

Status check_ranks(const Model& model, const checkpoint::Ranks& ranks) {
  if (ranks.count == 1) return {};
  const std::string part = model.parts_of_one_rank();
  if (!part.empty()) {
    return unimplemented(fmt::format("ranks do not share {} of this family yet; legal: 1", part));
  }
  const std::vector<checkpoint::WeightSpec> specs = model.weight_specs();
  std::vector<int64_t> legal;
  Status asked;
  for (int64_t count = 1; count <= checkpoint::kMaxRanks; ++count) {
    const Status status = check_slices(specs, {count, ranks.exact});
    if (status.ok()) legal.push_back(count);
    if (count == ranks.count) asked = status;
  }
  if (asked.ok() && ranks.count > 0 && ranks.count <= checkpoint::kMaxRanks) return {};
  const std::string why = asked.ok()
                              ? fmt::format("a host has at most {} ranks", checkpoint::kMaxRanks)
                              : asked.message();
  return invalid_argument(fmt::format("{}; legal: {}", why, fmt::join(legal, ", ")));
}

}  // namespace heddle::models

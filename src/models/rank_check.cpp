// SPDX-License-Identifier: Apache-2.0
#include "models/rank_check.h"

#include <string>

#include <fmt/format.h>

namespace heddle::models {

std::vector<Status> legal_ranks(const Model& model, bool exact) {
  std::vector<Status> legal = checkpoint::legal_ranks(model.weight_specs(), exact);
  const std::string part = model.parts_of_one_rank();
  if (part.empty()) return legal;
  for (size_t i = 1; i < legal.size(); ++i) {
    legal[i] = unimplemented(fmt::format("ranks do not share {} of this family yet", part));
  }
  return legal;
}

Status check_ranks(const Model& model, const checkpoint::Ranks& ranks) {
  if (ranks.count == 1) return {};
  const std::vector<Status> statuses = legal_ranks(model, ranks.exact);
  std::vector<size_t> legal;
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (statuses[i].ok()) legal.push_back(i + 1);
  }
  const bool has_status = ranks.count > 0 && ranks.count <= checkpoint::kMaxRanks;
  const Status asked =
      has_status
          ? statuses[static_cast<size_t>(ranks.count - 1)]
          : invalid_argument(fmt::format("a host has at most {} ranks", checkpoint::kMaxRanks));
  if (asked.ok()) return {};
  return {asked.code(), fmt::format("{}; legal: {}", asked.message(), fmt::join(legal, ", "))};
}

}  // namespace heddle::models

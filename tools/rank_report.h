// SPDX-License-Identifier: Apache-2.0
// How ranks would share a model (`heddle inspect --tp`): the slices of its weights, the memory that
// each rank's take, and the numbers of ranks that divide it. Reads no weight.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <heddle/status.h>

#include "checkpoint/load_weights.h"
#include "checkpoint/weight_slice.h"

namespace heddle::tools {

struct SharedWeight {
  std::string name;
  std::string cut;            // "rows", "columns of each expert", ...
  std::vector<Shape> shapes;  // by rank
};

struct RankReport {
  checkpoint::Ranks ranks;
  std::vector<SharedWeight> weights;
  std::vector<int64_t> rank_bytes;
  std::vector<int64_t> legal;              // numbers of ranks
  std::map<int64_t, std::string> refused;  // the others, each with a weight that it does not divide
};

// Error: kInvalidArgument for ranks that do not divide the model, with the first weight that they
// do not divide and the numbers that do; those of checkpoint::bytes_to_load().
Result<RankReport> report_on_ranks(std::span<const checkpoint::WeightSpec> specs,
                                   const checkpoint::WeightSource& source,
                                   const checkpoint::LoadOptions& options,
                                   const checkpoint::Ranks& ranks);

[[nodiscard]] std::string to_text(const RankReport& report);
[[nodiscard]] nlohmann::ordered_json to_json(const RankReport& report);

}  // namespace heddle::tools

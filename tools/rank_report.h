// SPDX-License-Identifier: Apache-2.0
// Reports how ranks would share a model (`heddle inspect --tp`): the slice of each weight, the
// memory of each rank, and the allowed numbers of ranks. It reads no weights.
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
  std::string cut;            // how the weight is divided: "rows", "columns of each expert", ...
  std::vector<Shape> shapes;  // shape of the slice of each rank
};

struct RankReport {
  checkpoint::Ranks ranks;
  std::vector<SharedWeight> weights;
  std::vector<int64_t> rank_bytes;
  std::vector<int64_t> legal;  // numbers of ranks that can share the model
  // Other numbers of ranks, each with a message that names a weight that it does not divide.
  std::map<int64_t, std::string> refused;
};

// Makes the report. Error: kInvalidArgument if the ranks do not divide the model, naming the first
// weight that they do not divide and the allowed numbers; those of checkpoint::bytes_to_load().
Result<RankReport> report_on_ranks(std::span<const checkpoint::WeightSpec> specs,
                                   const checkpoint::WeightSource& source,
                                   const checkpoint::LoadOptions& options,
                                   const checkpoint::Ranks& ranks);

[[nodiscard]] std::string to_text(const RankReport& report);
[[nodiscard]] nlohmann::ordered_json to_json(const RankReport& report);

}  // namespace heddle::tools

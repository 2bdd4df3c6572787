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
#include "models/model.h"

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
  // Other numbers of ranks, each with the error of models::legal_ranks().
  std::map<int64_t, std::string> refused;
};

// Makes the report. Errors: those of models::check_ranks() and of checkpoint::bytes_to_load().
Result<RankReport> report_on_ranks(const models::Model& model,
                                   const checkpoint::WeightSource& source,
                                   const checkpoint::LoadOptions& options,
                                   const checkpoint::Ranks& ranks);

[[nodiscard]] std::string to_text(const RankReport& report);
[[nodiscard]] nlohmann::ordered_json to_json(const RankReport& report);

}  // namespace heddle::tools

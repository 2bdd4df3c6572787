// SPDX-License-Identifier: Apache-2.0
// Step3Config: the keys of config.json that only Step 3.5 has.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

struct Step3Config {
  int64_t num_sliding_heads = 0;
  double score_width = 0;  // query_pre_attn_scalar: scores are divided by its square root
  int64_t shared_intermediate_size = 0;
  std::vector<double> expert_limits;  // [num_layers]: bound of the routed experts' activation; 0:
                                      // no bound
  std::vector<double> shared_limits;  // [num_layers]: bound in shared experts and dense MLPs; 0: no
                                      // bound

  bool operator==(const Step3Config&) const = default;
};

checkpoint::SharedKeys step3_keys(checkpoint::ConfigReader& reader);
void read_step3_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config);

}  // namespace heddle::models

// SPDX-License-Identifier: Apache-2.0
#include "models/drafts/draft_model.h"

#include <algorithm>
#include <string_view>

namespace heddle::models {

bool has_weights_of(const DraftModel& model, const checkpoint::WeightSource& source) {
  const std::vector<checkpoint::WeightSpec> specs = model.weight_specs();
  const std::vector<std::string_view> names = source.names();
  return std::ranges::any_of(specs.front().alternatives, [&](const auto& assembly) {
    return std::ranges::find(names, assembly.front().tensor.name) != names.end();
  });
}

}  // namespace heddle::models

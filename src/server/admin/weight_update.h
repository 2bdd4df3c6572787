// SPDX-License-Identifier: Apache-2.0
// POST /update_weights_from_disk: replaces the served weights with those of another folder.
//
// Threading: called on the I/O thread and never blocks it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <heddle/engine.h>

#include "server/admin/engine_control.h"
#include "server/admin/weight_version.h"
#include "server/http/api_error.h"
#include "server/http/exchange.h"

namespace heddle::server {

struct WeightUpdateOrder {
  WeightUpdate update;
  std::optional<std::string> weight_version;  // new name of the weights; none: keep the name
};

std::variant<WeightUpdateOrder, ApiError> read_weight_update(std::string_view body);

// Answers 200 once the new weights are in use, and 400 with the problem if the old ones stay:
// `{"success", "message", "num_paused_requests"}`. `version`, which outlives the engine, is changed
// on the engine's thread before the first event with the new weights.
void update_weights(Engine& engine, const Post& post, WeightVersion& version,
                    std::shared_ptr<Exchange> exchange);

}  // namespace heddle::server

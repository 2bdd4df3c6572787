// SPDX-License-Identifier: Apache-2.0
// POST /update_weights_from_disk: the weights of another folder take the place of those that are
// served.
//
// Threading: called on the I/O thread, which nothing here blocks.
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
  std::optional<std::string> weight_version;  // none: as it is
};

std::variant<WeightUpdateOrder, ApiError> read_weight_update(std::string_view body);

// Answers 200 once the weights are in use, and 400 with what is wrong while the old ones stay:
// `{"success", "message", "num_paused_requests"}`. `version`, which outlives the engine, changes on
// the engine's thread, before the first event of the new weights.
void update_weights(Engine& engine, const Post& post, WeightVersion& version,
                    std::shared_ptr<Exchange> exchange);

}  // namespace heddle::server

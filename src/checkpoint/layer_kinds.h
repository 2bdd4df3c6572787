// SPDX-License-Identifier: Apache-2.0
// Which kind of attention each layer has, and the window of those that slide.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

// Fills in layer_kinds: what layer_types says or, without it, `otherwise(layer)`. Errors stay in
// the reader: kUnimplemented for a kind that is not among `served`.
void read_layer_kinds(ConfigReader& reader, ModelConfig& config,
                      const std::vector<LayerKind>& served,
                      const std::function<LayerKind(int64_t layer)>& otherwise);

// Fills in sliding_window where some layer slides; required there unless there is a `fallback`.
void read_sliding_window(ConfigReader& reader, ModelConfig& config,
                         std::optional<int64_t> fallback = std::nullopt);

// Both, for families whose layers slide from max_window_layers on where use_sliding_window is true.
void read_late_windows(ConfigReader& reader, ModelConfig& config);

}  // namespace heddle::checkpoint

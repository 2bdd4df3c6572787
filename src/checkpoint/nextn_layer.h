// SPDX-License-Identifier: Apache-2.0
// The next-token-prediction layer of a checkpoint (multi-token prediction, MTP): one more layer
// that guesses the token after next, which speculative decoding uses as its draft model. This
// header says where a checkpoint keeps it and what it is called in a folder of its own
// (export_nextn.h). DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 2.2.
//
//   after the last layer  model.layers.{num_hidden_layers}.*  becomes  model.layers.0.*
//   own prefix            mtp.*                               keeps its names, which are those that
//                                                             a loader of the whole model looks for
//
// Copies of the embedding and of the output head are left out: a draft shares its target's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

namespace heddle::checkpoint {

struct NextnLayer {
  enum class Form : uint8_t {
    kAfterLastLayer,  // DeepSeek-V3 and its kin
    kOwnPrefix,       // Qwen3-Next
  };

  Form form = Form::kAfterLastLayer;
  int64_t layer_index = 0;  // for kAfterLastLayer: num_hidden_layers

  // The name of a hub tensor in the draft's folder; none when it does not belong there.
  [[nodiscard]] std::optional<std::string> draft_name(std::string_view hub_name) const;
};

// Finds the layer by the tensors' names. Error: kNotFound when there is none; kDataLoss when config
// and names contradict each other; kUnimplemented for more than one such layer.
Result<NextnLayer> find_nextn_layer(const nlohmann::json& config,
                                    std::span<const std::string_view> hub_names);

// The configuration of the draft: one layer, the draft's architecture, everything else as it was.
// The lists of modules in quantization_config follow the layer: entries of other layers would now
// name the only one, and are dropped. Error: kDataLoss naming the key.
Result<nlohmann::json> draft_config(const nlohmann::json& config, const NextnLayer& layer);

}  // namespace heddle::checkpoint

// SPDX-License-Identifier: Apache-2.0
// The next-token-prediction layer of a checkpoint (multi-token prediction, MTP): an additional
// layer that predicts the token after the next one and that speculative decoding uses as a draft
// model. This header finds the layer in a checkpoint and gives its tensors' names in a folder of
// its own (export_nextn.h). DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section
// 2.2.
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
    kAfterLastLayer,  // model.layers.{num_hidden_layers}.*, as in DeepSeek-V3 and its relatives
    kOwnPrefix,       // names begin with "mtp.", as in Qwen3-Next
  };

  Form form = Form::kAfterLastLayer;
  int64_t layer_index = 0;  // index N in "model.layers.N." for kAfterLastLayer: num_hidden_layers

  // The name that a hub tensor has in the draft's folder; none if the tensor is not part of the
  // draft.
  [[nodiscard]] std::optional<std::string> draft_name(std::string_view hub_name) const;
};

// Finds the layer by the tensors' names. Error: kNotFound if there is none; kDataLoss if config and
// names contradict each other; kUnimplemented for more than one such layer.
Result<NextnLayer> find_nextn_layer(const nlohmann::json& config,
                                    std::span<const std::string_view> hub_names);

// The draft's config.json: one layer, the draft's architecture, everything else unchanged. In the
// module lists of quantization_config, entries for this layer are renamed. Entries for other layers
// are dropped, because they would now name the draft's only layer. Error: kDataLoss naming the key.
Result<nlohmann::json> draft_config(const nlohmann::json& config, const NextnLayer& layer);

}  // namespace heddle::checkpoint

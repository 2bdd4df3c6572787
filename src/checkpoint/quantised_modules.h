// SPDX-License-Identifier: Apache-2.0
// QuantisedModules: how each module of a checkpoint is stored. The names and dtypes of its tensors
// decide:
//
//   P.qweight                               AWQ or GPTQ, by the config
//   P.weight_packed I32                     compressed-tensors, packed integers
//   P.weight_packed U8                      NVFP4, with P.weight_global_scale, or MXFP4, where
//                                           P.weight_scale is U8
//   P.weight F8_E4M3 and P.weight_scale_inv or P.weight_scale
//   P.weight I8 and P.weight_scale
//   P.weight U8 and P.weight_scale          NVFP4, with P.weight_scale_2
//   P_blocks and P_scales                   MXFP4, for a tensor P without ".weight"
//   P.weight in blocks of a GGUF file       where packed rows have a form for them
//   anything else                           plain, not quantised
//
// A tensor P without ".weight" contains all experts of a layer. Its scales are P_scale_inv, P_scale
// or P_weight_scale, and P_scale_2 or P_weight_scale_2.
//
// The config must agree. It is an error, which names the module, if a module is stored in a format
// that the config's method does not have, or is quantised although the config says that it is not.
// A plain module that the config does not list as an exception is accepted: many published heads
// are like that.
//
// Threading: thread-compatible; refers to the source and the config.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "checkpoint/quantization_config.h"
#include "checkpoint/weight_map.h"
#include "quant/file_formats.h"

namespace heddle::checkpoint {

struct QuantisedModule {
  quant::StoredMatrix matrix;
  quant::RowFormat format;
};

class QuantisedModules {
 public:
  // `config` may be null if the checkpoint has none. `on_gpu`: a GPU will read the packed rows; it
  // supports fewer of their formats (quant::packed_format()).
  QuantisedModules(const WeightSource& source, const QuantizationConfig* config, bool on_gpu);

  // Whether the tensor exists in a quantised form.
  [[nodiscard]] bool contains(std::string_view tensor) const;

  // Whether the source can also read the tensor as plain numbers. That holds for blocks of a GGUF
  // file, which stay packed if the weight uses whole stored rows (RowForm::kLastDimension).
  [[nodiscard]] bool is_readable(std::string_view tensor) const;

  // Finds how a piece is quantised; none if it is not, or if is_readable() and the piece does not
  // use whole stored rows. `used` receives the names of the tensors that the module consists of.
  // Error: as the header's first comment says, and as quant::row_format; names the module.
  Result<std::optional<QuantisedModule>> find(const HubPiece& piece,
                                              std::unordered_set<std::string>& used) const;

  // Whether a stored tensor is not part of any weight: scales of KV caches (kv_scales.h) and, in a
  // quantised checkpoint, scales of activations and all-zero biases that some exporters add.
  [[nodiscard]] bool ignorable(std::string_view tensor) const;

 private:
  [[nodiscard]] std::optional<quant::FileLayout> layout_of(std::string_view tensor) const;

  [[nodiscard]] bool has(const std::string& name) const { return names_.contains(name); }

  [[nodiscard]] std::optional<std::string> scale_name(std::string_view tensor) const;
  Status check_agreement(const std::string& module, quant::FileLayout layout) const;
  Result<TensorView> view(const std::string& name, std::unordered_set<std::string>& used) const;

  const WeightSource& source_;
  const QuantizationConfig* config_;
  bool on_gpu_ = false;
  std::unordered_set<std::string> names_;
};

}  // namespace heddle::checkpoint

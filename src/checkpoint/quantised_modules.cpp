// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantised_modules.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "checkpoint/kv_scales.h"
#include "checkpoint/readable.h"

namespace heddle::checkpoint {

namespace {

using quant::FileLayout;

constexpr std::string_view kWeight = ".weight";

// The module's name, for "model.layers.0.mlp.up_proj.weight" as well as for
// "model.layers.0.mlp.experts.down_proj", which has no ending.
std::string module_of(std::string_view tensor) {
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  return std::string(tensor);
}

bool method_has(QuantMethod method, FileLayout layout) {
  switch (layout) {
    case FileLayout::kAwq:
      return method == QuantMethod::kAwq;
    case FileLayout::kGptq:
      return method == QuantMethod::kGptq;
    case FileLayout::kPackQuantized:
      return method == QuantMethod::kCompressedTensors;
    case FileLayout::kE4M3:
      return method == QuantMethod::kFp8 || method == QuantMethod::kCompressedTensors ||
             method == QuantMethod::kModelOpt;
    case FileLayout::kInt8:
      return method == QuantMethod::kCompressedTensors || method == QuantMethod::kInt8;
    case FileLayout::kMxfp4:
      return method == QuantMethod::kMxfp4 || method == QuantMethod::kCompressedTensors;
    case FileLayout::kNvfp4:
      return method == QuantMethod::kModelOpt || method == QuantMethod::kCompressedTensors;
    case FileLayout::kBlocks:
      return true;
  }
  return false;
}

// The names of a tensor's scales begin with one of these. The scales of "m.weight" begin with
// "m.weight"; where one tensor "experts.up_proj" holds all experts, its scales begin with
// "experts.up_proj" or "experts.up_proj_weight".
std::vector<std::string> scale_prefixes(std::string_view tensor) {
  const std::string name(tensor);
  if (tensor.ends_with(kWeight)) return {name};
  return {name, name + "_weight"};
}

}  // namespace

QuantisedModules::QuantisedModules(const WeightSource& source, const QuantizationConfig* config,
                                   bool on_gpu)
    : source_(source), config_(config), on_gpu_(on_gpu) {
  for (const std::string_view name : source.names()) names_.emplace(name);
}

std::optional<FileLayout> QuantisedModules::layout_of(std::string_view tensor) const {
  const std::string module = module_of(tensor);
  if (has(module + ".qweight")) {
    const bool gptq =
        config_ != nullptr ? config_->method == QuantMethod::kGptq : has(module + ".g_idx");
    return gptq ? FileLayout::kGptq : FileLayout::kAwq;
  }
  const auto stored_dtype = [&](const std::string& name) {
    return source_.find({.name = name, .shape = {}})->dtype;
  };
  if (const std::string packed = module + ".weight_packed"; has(packed)) {
    if (stored_dtype(packed) != DType::kU8) return FileLayout::kPackQuantized;
    const std::string scale = module + ".weight_scale";
    const bool powers = has(scale) && stored_dtype(scale) == DType::kU8;
    return powers ? FileLayout::kMxfp4 : FileLayout::kNvfp4;
  }
  if (has(module + "_blocks")) return FileLayout::kMxfp4;
  const std::string name(tensor);
  if (!has(name)) return std::nullopt;
  const std::optional<StoredWeight> stored = source_.find({.name = name, .shape = {}});
  if (stored && stored->blocks) {
    const bool packed = packed_format(stored->blocks->type, stored->blocks->K, on_gpu_).has_value();
    return packed ? std::optional(FileLayout::kBlocks) : std::nullopt;
  }
  const std::optional<DType> dtype = stored_dtype(name);
  if (dtype == DType::kF8E4M3) return FileLayout::kE4M3;
  if (dtype == DType::kI8) return FileLayout::kInt8;
  if (dtype == DType::kU8 && scale_name(tensor)) return FileLayout::kNvfp4;
  return std::nullopt;
}

// The name of the tensor's multiplier scale that exists: with the ending "_scale_inv" or "_scale".
std::optional<std::string> QuantisedModules::scale_name(std::string_view tensor) const {
  for (const std::string& prefix : scale_prefixes(tensor)) {
    for (const char* const suffix : {"_scale_inv", "_scale"}) {
      if (has(prefix + suffix)) return prefix + suffix;
    }
  }
  return std::nullopt;
}

bool QuantisedModules::contains(std::string_view tensor) const {
  return layout_of(tensor).has_value();
}

bool QuantisedModules::is_readable(std::string_view tensor) const {
  return layout_of(tensor) == FileLayout::kBlocks;
}

Status QuantisedModules::check_agreement(const std::string& module, FileLayout layout) const {
  if (layout == FileLayout::kBlocks) return ok_status();  // GGUF files have no such config
  if (config_ == nullptr) {
    return invalid_argument(
        fmt::format("it is stored as {}, but config.json has no quantization_config",
                    quant::to_string(layout)));
  }
  if (!method_has(config_->method, layout)) {
    return invalid_argument(fmt::format("it is stored as {}, but quant_method is {}",
                                        quant::to_string(layout), to_string(config_->method)));
  }
  if (config_->ignores(module)) {
    return invalid_argument(
        fmt::format("it is stored as {}, but quantization_config says it is not quantised",
                    quant::to_string(layout)));
  }
  return ok_status();
}

Result<TensorView> QuantisedModules::view(const std::string& name,
                                          std::unordered_set<std::string>& used) const {
  if (!has(name)) return not_found(fmt::format("{} is missing", readable(name)));
  const std::optional<StoredWeight> stored = source_.find({.name = name, .shape = {}});
  if (!stored->dtype) {
    return invalid_argument(
        fmt::format("{} is {}, which is not served", readable(name), stored->stored_dtype));
  }
  used.insert(name);
  return TensorView(stored->data, *stored->dtype, stored->shape);
}

Result<std::optional<QuantisedModule>> QuantisedModules::find(
    const HubPiece& piece, std::unordered_set<std::string>& used) const {
  const std::optional<FileLayout> layout = layout_of(piece.tensor.name);
  if (!layout) return std::optional<QuantisedModule>();
  if (*layout == FileLayout::kBlocks && piece.form != RowForm::kLastDimension) {
    return std::optional<QuantisedModule>();
  }
  const std::string module = module_of(piece.tensor.name);
  const auto read = [&]() -> Result<QuantisedModule> {
    HEDDLE_RETURN_IF_ERROR(check_agreement(module, *layout));
    QuantisedModule found;
    quant::StoredMatrix& matrix = found.matrix;
    matrix.layout = *layout;
    matrix.K = stored_row_width(piece);
    matrix.N = num_rows(piece);
    if (piece.tensor.shape.rank() == 3) matrix.num_experts = piece.tensor.shape[0];
    matrix.input_major = piece.form == RowForm::kInputMajor;
    if (*layout == FileLayout::kBlocks) {
      const std::string& name = piece.tensor.name;
      const std::optional<StoredWeight> stored = source_.find({.name = name, .shape = {}});
      used.insert(name);
      if (stored->shape != piece.tensor.shape) {
        return invalid_argument(fmt::format("it is {}, the model needs {}",
                                            stored->shape.to_string(),
                                            piece.tensor.shape.to_string()));
      }
      matrix.blocks = *stored->blocks;
      matrix.on_gpu = on_gpu_;
      HEDDLE_ASSIGN_OR_RETURN(found.format, quant::row_format(matrix));
      return found;
    }
    matrix.bits = config_->bits_of(module);
    matrix.symmetric = config_->symmetric;
    matrix.zeros_less_one = config_->zeros_less_one;
    matrix.block_rows = config_->block_rows;
    matrix.block_columns = config_->block_columns;
    const auto take = [&](const std::string& suffix, TensorView& view_of) -> Status {
      HEDDLE_ASSIGN_OR_RETURN(view_of, view(module + suffix, used));
      return ok_status();
    };
    const auto take_if_there = [&](const std::string& suffix, TensorView& view_of) -> Status {
      return has(module + suffix) ? take(suffix, view_of) : ok_status();
    };
    switch (*layout) {
      case FileLayout::kAwq:
      case FileLayout::kGptq:
        HEDDLE_RETURN_IF_ERROR(take(".qweight", matrix.codes));
        HEDDLE_RETURN_IF_ERROR(take(".scales", matrix.scales));
        HEDDLE_RETURN_IF_ERROR(take(".qzeros", matrix.zeros));
        if (*layout == FileLayout::kGptq) {
          HEDDLE_RETURN_IF_ERROR(take_if_there(".g_idx", matrix.group_index));
        }
        break;
      case FileLayout::kPackQuantized:
        HEDDLE_RETURN_IF_ERROR(take(".weight_packed", matrix.codes));
        HEDDLE_RETURN_IF_ERROR(take(".weight_scale", matrix.scales));
        HEDDLE_RETURN_IF_ERROR(take_if_there(".weight_zero_point", matrix.zeros));
        HEDDLE_RETURN_IF_ERROR(take_if_there(".weight_g_idx", matrix.group_index));
        break;
      case FileLayout::kE4M3:
      case FileLayout::kInt8: {
        HEDDLE_ASSIGN_OR_RETURN(matrix.codes, view(piece.tensor.name, used));
        const std::optional<std::string> scale = scale_name(piece.tensor.name);
        if (!scale) {
          return not_found(fmt::format("weight is {}, but there is no weight_scale{}",
                                       *layout == FileLayout::kE4M3 ? "F8_E4M3" : "I8",
                                       *layout == FileLayout::kE4M3 ? " or weight_scale_inv" : ""));
        }
        HEDDLE_ASSIGN_OR_RETURN(matrix.scales, view(*scale, used));
        break;
      }
      case FileLayout::kMxfp4: {
        const bool in_blocks = has(module + "_blocks");
        HEDDLE_RETURN_IF_ERROR(take(in_blocks ? "_blocks" : ".weight_packed", matrix.codes));
        HEDDLE_RETURN_IF_ERROR(take(in_blocks ? "_scales" : ".weight_scale", matrix.scales));
        break;
      }
      case FileLayout::kNvfp4: {
        matrix.divided = has(module + ".weight_packed");
        if (matrix.divided) {
          HEDDLE_RETURN_IF_ERROR(take(".weight_packed", matrix.codes));
          HEDDLE_RETURN_IF_ERROR(take(".weight_scale", matrix.scales));
          HEDDLE_RETURN_IF_ERROR(take(".weight_global_scale", matrix.factors));
          break;
        }
        const std::string scale = *scale_name(piece.tensor.name);
        HEDDLE_ASSIGN_OR_RETURN(matrix.codes, view(piece.tensor.name, used));
        HEDDLE_ASSIGN_OR_RETURN(matrix.scales, view(scale, used));
        HEDDLE_ASSIGN_OR_RETURN(matrix.factors, view(scale + "_2", used));
        break;
      }
      case FileLayout::kBlocks:
        break;
    }
    HEDDLE_ASSIGN_OR_RETURN(found.format, quant::row_format(matrix));
    const bool grouped = *layout == FileLayout::kAwq || *layout == FileLayout::kGptq;
    const int64_t expected = config_->group_size == -1 ? matrix.K : config_->group_size;
    if (grouped && expected > 0 && found.format.group_index == nullptr &&
        found.format.group_size != std::min(expected, matrix.K)) {
      return invalid_argument(
          fmt::format("quantization_config says groups of {}, the scales say {}", expected,
                      found.format.group_size));
    }
    return found;
  };
  Result<QuantisedModule> found = read();
  if (!found.ok()) {  // reported once, not again for each tensor of the module
    for (const std::string& name : names_) {
      if (name.starts_with(module + '.') || name.starts_with(module + '_')) used.insert(name);
    }
    return found.status().with_context(readable(module));
  }
  return std::optional<QuantisedModule>(std::move(found).value());
}

bool QuantisedModules::ignorable(std::string_view tensor) const {
  constexpr std::array<std::string_view, 9> kSuffixes = {
      ".input_scale", "_input_scale",  ".weight_shape",     ".input_global_scale", ".q_scale",
      ".g_idx",       ".output_scale", ".input_zero_point", ".activation_scale",
  };
  if (is_kv_scale(tensor)) return true;
  if (config_ == nullptr) return false;
  for (const std::string_view suffix : kSuffixes) {
    if (tensor.ends_with(suffix)) return true;
  }
  constexpr std::string_view kBias = ".bias";
  if (!tensor.ends_with(kBias)) return false;
  const std::string module(tensor.substr(0, tensor.size() - kBias.size()));
  if (!has(module + ".qweight")) return false;
  const std::optional<StoredWeight> stored = source_.find({.name = tensor, .shape = {}});
  if (!stored || stored->data == nullptr || !stored->dtype) return false;
  const auto* bytes = static_cast<const unsigned char*>(stored->data);
  const int64_t count = bytes_of(*stored->dtype, stored->shape.num_elements());
  return std::all_of(bytes, bytes + count, [](unsigned char byte) { return byte == 0; });
}

}  // namespace heddle::checkpoint

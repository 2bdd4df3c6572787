// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_linears.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/adapter_places.h"
#include "checkpoint/convert.h"
#include "checkpoint/readable.h"

namespace heddle::checkpoint {

namespace {

// The adapter's modules whose rows are rows of one weight.
struct LinearParts {
  struct Part {
    const AdapterUpdate* update = nullptr;
    const HubPiece* piece = nullptr;
    AdapterScaling scaling;
  };

  const WeightSpec* spec = nullptr;
  std::vector<Part> parts;
};

Status check_update(const AdapterUpdate& update, const TensorPlace* place,
                    const AdapterConfig& config) {
  if (update.of_embedding || (place != nullptr && place->spec->name == kEmbeddingWeight)) {
    return can_only_be_merged(update.module, "is an embedding");
  }
  if (update.magnitude) return can_only_be_merged(update.module, "has a magnitude (use_dora)");
  if (place == nullptr && config.parameters_of(update.module).empty()) {
    return invalid_argument(
        fmt::format("module {} is no linear layer of the model; use the adapter with its own base",
                    readable(update.module)));
  }
  if (place != nullptr && place->spec->shape.rank() == 2 &&
      place->piece->form == RowForm::kLastDimension) {
    return ok_status();
  }
  return can_only_be_merged(update.module, "is of experts or no linear layer");
}

Status check_shapes(const LinearParts::Part& part) {
  const AdapterUpdate& update = *part.update;
  if (update.a.shape[0] != part.scaling.rank) {
    return invalid_argument(fmt::format(
        "lora_A of module {} has {} rows, but adapter_config.json gives it rank {}; the two files "
        "are not of one adapter",
        readable(update.module), update.a.shape[0], part.scaling.rank));
  }
  const Shape& shape = part.piece->tensor.shape;
  if (update.a.shape[1] == shape[1] && update.b.shape[0] == shape[0]) return ok_status();
  return invalid_argument(fmt::format(
      "lora_A and lora_B of module {} are {} and {}, but the base's weight is {}; use the adapter "
      "with its own base",
      readable(update.module), update.a.shape.to_string(), update.b.shape.to_string(),
      shape.to_string()));
}

// Fills part `index` of the weight's A, and its rows of B.
Status add_part(const LinearParts::Part& part, int64_t index, std::vector<bool>& has_update,
                AdapterLinear& linear) {
  const AdapterUpdate& update = *part.update;
  const int64_t R = linear.b.shape()[2], K = linear.a.shape()[2], rank = part.scaling.rank;
  convert_elements(update.a.data, update.a.dtype, linear.a.span<float>().data() + index * R * K,
                   DType::kF32, rank * K);
  std::vector<float> b(static_cast<size_t>(update.b.num_elements()));
  convert_elements(update.b.data, update.b.dtype, b.data(), DType::kF32, std::ssize(b));
  for (const RowRun& run : part.piece->runs) {
    for (int64_t i = 0; i < run.num_rows; ++i) {
      const int64_t source = run.source_row + i * run.source_step;
      const int64_t target = run.target_row + i;
      if (has_update[static_cast<size_t>(target)]) {
        return invalid_argument(fmt::format(
            "module {} changes rows that another module of the adapter changes, too; merge it: "
            "heddle merge MODEL ADAPTER OUT_DIR",
            readable(update.module)));
      }
      has_update[static_cast<size_t>(target)] = true;
      linear.parts.span<int32_t>()[static_cast<size_t>(target)] = static_cast<int32_t>(index);
      for (int64_t r = 0; r < rank; ++r) {
        const double scaled =
            part.scaling.scale * double{b[static_cast<size_t>(source * rank + r)]};
        if (!(std::abs(scaled) <= double{std::numeric_limits<float>::max()})) {
          return invalid_argument(fmt::format(
              "module {}: lora_B times the scale {} is too large for float32; lower lora_alpha",
              readable(update.module), part.scaling.scale));
        }
        linear.b.span<float>()[static_cast<size_t>(target * R + r)] = static_cast<float>(scaled);
      }
    }
  }
  return ok_status();
}

Result<AdapterLinear> join_parts(const LinearParts& linear) {
  int64_t R = 0;
  for (const LinearParts::Part& part : linear.parts) R = std::max(R, part.scaling.rank);
  const int64_t N = linear.spec->shape[0], K = linear.spec->shape[1];
  AdapterLinear joined{.weight = linear.spec->name,
                       .module = linear.parts.front().update->module,
                       .a = Tensor({1, std::ssize(linear.parts) * R, K}, DType::kF32),
                       .b = Tensor({1, N, R}, DType::kF32),
                       .parts = Tensor({1, N}, DType::kI32)};
  std::vector<bool> has_update(static_cast<size_t>(N));
  for (size_t i = 0; i < linear.parts.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(add_part(linear.parts[i], static_cast<int64_t>(i), has_update, joined));
  }
  return joined;
}

// Refuses tensors that are no low-rank products.
Status check_whole_tensors(const AdapterFiles& files, const AdapterPlaces& places,
                           const WeightSource& base) {
  using Kind = AdapterTensor::Kind;
  for (const AdapterTensor& tensor : files.tensors()) {
    switch (tensor.kind) {
      case Kind::kSavedBase:
        HEDDLE_RETURN_IF_ERROR(places.check_saved(tensor, base));
        break;
      case Kind::kTokenRows:
        return can_only_be_merged(tensor.module, "has trained tokens (trainable_token_indices)");
      case Kind::kAddedBias:
        return can_only_be_merged(tensor.module, "has a bias of the adapter (lora_bias)");
      case Kind::kReplacement:
        return can_only_be_merged(tensor.module, "is saved whole (modules_to_save, bias)");
    }
  }
  return ok_status();
}

}  // namespace

Status can_only_be_merged(std::string_view module, std::string_view why) {
  return unimplemented(fmt::format(
      "module {} {}, which can only be merged into the model: heddle merge MODEL ADAPTER OUT_DIR",
      readable(module), why));
}

Result<std::vector<AdapterLinear>> adapter_linears(const AdapterFiles& files,
                                                   std::span<const WeightSpec> specs,
                                                   const WeightSource& base) {
  const AdapterPlaces places(specs);
  std::map<std::string_view, LinearParts> linears;
  for (const AdapterUpdate& update : files.updates()) {
    const TensorPlace* const place = places.find(update.module + ".weight");
    HEDDLE_RETURN_IF_ERROR(check_update(update, place, files.config()));
    LinearParts& linear = linears[place->spec->name];
    linear.spec = place->spec;
    linear.parts.push_back({.update = &update,
                            .piece = place->piece,
                            .scaling = files.config().scaling(update.module)});
    HEDDLE_RETURN_IF_ERROR(check_shapes(linear.parts.back()));
  }
  HEDDLE_RETURN_IF_ERROR(check_whole_tensors(files, places, base));
  std::vector<AdapterLinear> joined;
  for (const auto& [name, linear] : linears) {
    HEDDLE_ASSIGN_OR_RETURN(AdapterLinear one, join_parts(linear));
    joined.push_back(std::move(one));
  }
  return joined;
}

}  // namespace heddle::checkpoint

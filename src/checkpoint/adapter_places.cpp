// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_places.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/convert.h"
#include "checkpoint/readable.h"

namespace heddle::checkpoint {

namespace {

// Whether both hold the same numbers when rounded to the narrower of the two dtypes.
bool equals_stored(const TensorView& saved, const StoredWeight& stored, const WeightSource& base) {
  const DType narrow = saved.dtype == DType::kF32 ? *stored.dtype : saved.dtype;
  const auto num_bytes = static_cast<size_t>(bytes_of(narrow, saved.num_elements()));
  std::vector<std::byte> ours(num_bytes), theirs(num_bytes);
  base.read(stored, 0, saved.num_elements(), narrow, ours.data());
  convert_elements(saved.data, saved.dtype, theirs.data(), narrow, saved.num_elements());
  return ours == theirs;
}

}  // namespace

std::string canonical_name(std::string_view name) {
  std::string text(name);
  for (const auto& [prefix, instead] :
       {std::pair<std::string_view, std::string_view>("model.language_model.", "model."),
        {"language_model.model.", "model."},
        {"language_model.", ""}}) {
    if (!text.starts_with(prefix)) continue;
    text = std::string(instead) + text.substr(prefix.size());
    break;
  }
  constexpr std::string_view kOld = ".block_sparse_moe.";
  const size_t at = text.find(kOld);
  return at == std::string::npos ? text : text.replace(at, kOld.size(), ".mlp.");
}

AdapterPlaces::AdapterPlaces(std::span<const WeightSpec> specs) {
  const auto index = [&](auto&& name_of) {
    for (const WeightSpec& spec : specs) {
      for (const Assembly& assembly : spec.alternatives) {
        for (const HubPiece& piece : assembly) {
          places_.emplace(name_of(piece.tensor.name), TensorPlace{&spec, &piece});
        }
      }
    }
  };
  index([](const std::string& name) { return name; });
  index([](const std::string& name) { return canonical_name(name); });
}

const TensorPlace* AdapterPlaces::find(const std::string& name) const {
  for (const std::string& spelled : {name, canonical_name(name)}) {
    if (const auto found = places_.find(spelled); found != places_.end()) return &found->second;
  }
  return nullptr;
}

Status AdapterPlaces::check_saved(const AdapterTensor& saved, const WeightSource& base) const {
  const std::string name = saved.module + ".weight";
  const TensorPlace* const place = find(name);
  const std::string stored_name = place != nullptr ? place->piece->tensor.name : name;
  const auto stored = base.find({.name = stored_name, .shape = {}});
  if (!stored || !stored->dtype || !is_convertible(*stored->dtype)) return ok_status();
  if (stored->shape == saved.tensor.shape && equals_stored(saved.tensor, *stored, base)) {
    return ok_status();
  }
  return invalid_argument(fmt::format(
      "{} differs from the base's {}: the adapter is of another base, or has trained this weight, "
      "which is not merged; merge it in PEFT (merge_and_unload(), save_pretrained())",
      readable(saved.module + ".base_layer.weight"), readable(stored_name)));
}

}  // namespace heddle::checkpoint

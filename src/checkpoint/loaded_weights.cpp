// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/loaded_weights.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "checkpoint/readable.h"
#include "checkpoint/same_model.h"
#include "core/check.h"

namespace heddle::checkpoint {
namespace {

// The dtype or the packing of a weight, for messages.
std::string form_of(const TensorView& weight) {
  if (weight.dtype != DType::kPacked) return std::string(to_string(weight.dtype));
  std::vector<std::string> forms;
  for (const quant::PackedWeight::Part& part : weight.packed->parts) {
    forms.push_back(part.packed.num_rows > 0 ? part.packed.format.to_string()
                                             : std::string(to_string(part.plain.dtype)));
  }
  return fmt::format("{}", fmt::join(forms, " and "));
}

// Whether both weights have the same dtype, shape and layout of packed parts, on any device.
bool have_one_form(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  if (a.dtype != DType::kPacked) return true;
  return std::ranges::equal(a.packed->parts, b.packed->parts, [](const auto& one, const auto& two) {
    return one.first_row == two.first_row && one.num_rows == two.num_rows &&
           one.plain.dtype == two.plain.dtype && one.plain.shape == two.plain.shape &&
           one.packed.num_rows == two.packed.num_rows &&
           one.packed.rows_per_scale == two.packed.rows_per_scale &&
           (one.packed.num_rows == 0 || one.packed.format.same_layout(two.packed.format));
  });
}

}  // namespace

Status LoadedWeights::check_alike(const LoadedWeights& other) const {
  HEDDLE_CHECK_EQ(weights_.size(), other.weights_.size());
  const std::string* first = nullptr;
  for (const auto& [name, view] : weights_) {
    if (have_one_form(view, other[name])) continue;
    if (first == nullptr || name < *first) first = &name;
  }
  if (first == nullptr) return {};
  return differs_from_used(fmt::format("{} is {}, and {} in use", *first, form_of(other[*first]),
                                       form_of((*this)[*first])));
}

Status LoadedWeights::replace(const LoadedWeights& other, device::Stream* stream) {
  HEDDLE_CHECK(bytes_in_place_ == 0 && other.bytes_in_place_ == 0);
  HEDDLE_CHECK_EQ(arena_.size(), other.arena_.size());
  HEDDLE_CHECK_EQ(device_arena_.size(), other.device_arena_.size());
  for (const auto& [name, view] : weights_) {
    const TensorView& theirs = other[name];
    if (view.dtype == DType::kPacked)
      continue;  // packed weights are placed consecutively in both
                 // arenas
    HEDDLE_CHECK_EQ(view.as<std::byte>() - memory(), theirs.as<std::byte>() - other.memory());
  }
  if (arena_.size() > 0) {
    std::memcpy(arena_.data(), other.arena_.data(), static_cast<size_t>(arena_.size()));
  }
  if (device_arena_.size() == 0) return {};
  HEDDLE_CHECK(stream != nullptr);
  HEDDLE_RETURN_IF_ERROR(
      stream->copy(device_arena_.data(), other.device_arena_.data(), device_arena_.size()));
  return stream->synchronize();
}

const TensorView* LoadedWeights::find(std::string_view name) const {
  const auto found = weights_.find(name);
  return found == weights_.end() ? nullptr : &found->second;
}

const TensorView& LoadedWeights::host(std::string_view name) const {
  const auto found = on_host_.find(name);
  if (found == on_host_.end()) {
    internal::check_failed(HEDDLE_WHERE, "LoadedWeights::host(name)",
                           readable(name) + " is not kept on the host");
  }
  return found->second;
}

const TensorView& LoadedWeights::operator[](std::string_view name) const {
  const TensorView* const view = find(name);
  if (view == nullptr) {
    internal::check_failed(HEDDLE_WHERE, "LoadedWeights[name]", "no weight " + readable(name));
  }
  return *view;
}

}  // namespace heddle::checkpoint

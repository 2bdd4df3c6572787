// SPDX-License-Identifier: Apache-2.0
#include "ops/op_def.h"

#include <fmt/format.h>

namespace heddle::ops {

namespace {

std::string dim_to_string(const SymbolicDim& dim) {
  if (dim.is_fixed()) return std::to_string(dim.offset);
  std::string text = dim.symbol == Symbol::kTokens ? "T" : "R";
  if (dim.scale != 1) text = std::to_string(dim.scale) + text;
  if (dim.offset != 0) text += fmt::format("{:+}", dim.offset);
  return text;
}

}  // namespace

TensorMeta TensorMeta::of(const TensorView& view) {
  TensorMeta meta;
  meta.dtype = view.dtype;
  meta.rank = view.shape.rank();
  for (int i = 0; i < meta.rank; ++i) {
    meta.dims[static_cast<size_t>(i)] = SymbolicDim::fixed(view.shape[i]);
  }
  return meta;
}

Shape TensorMeta::shape_at(const Extents& extents) const {
  std::array<int64_t, Shape::kMaxRank> values{};
  for (size_t i = 0; i < static_cast<size_t>(rank); ++i) values[i] = dims[i].at(extents);
  return Shape(std::span<const int64_t>(values.data(), static_cast<size_t>(rank)));
}

int64_t TensorMeta::bytes_at(const Extents& extents) const {
  return bytes_of(dtype, shape_at(extents).num_elements());
}

std::string TensorMeta::to_string() const {
  std::string text(heddle::to_string(dtype));
  text += '[';
  for (int i = 0; i < rank; ++i) {
    if (i > 0) text += ", ";
    text += dim_to_string((*this)[i]);
  }
  return text + ']';
}

void Attrs::set(std::string_view name, double value) {
  for (size_t i = 0; i < size_; ++i) {
    if (entries_[i].name == name) {
      entries_[i].value = value;
      return;
    }
  }
  HEDDLE_CHECK_LT(size_, entries_.size());
  entries_[size_++] = {name, value};
}

std::optional<double> Attrs::find(std::string_view name) const {
  for (size_t i = 0; i < size_; ++i) {
    if (entries_[i].name == name) return entries_[i].value;
  }
  return std::nullopt;
}

double Attrs::real(std::string_view name) const {
  if (const std::optional<double> value = find(name)) return *value;
  internal::check_failed(HEDDLE_WHERE, "an attribute of the node", name);
}

}  // namespace heddle::ops

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_map.h"

#include <algorithm>
#include <utility>

namespace heddle::checkpoint {

namespace {

int64_t num_rows(const Shape& shape) {
  const std::span<const int64_t> dims = shape.dims();
  int64_t rows = 1;
  for (size_t i = 0; i < dims.size() && (i == 0 || i + 1 < dims.size()); ++i) rows *= dims[i];
  return rows;
}

std::string with_index(const std::string& pattern, int64_t index) {
  const size_t place = pattern.find('#');
  HEDDLE_CHECK(place != std::string::npos);
  std::string name = pattern;
  return name.replace(place, 1, std::to_string(index));
}

}  // namespace

int64_t stored_row_width(const HubPiece& piece) {
  const Shape& shape = piece.tensor.shape;
  switch (piece.form) {
    case RowForm::kLastDimension:
      return row_width(shape);
    case RowForm::kElement:
      return 1;
    case RowForm::kInputMajor:
      return shape[shape.rank() - 2];
  }
  return 1;
}

int64_t row_width(const HubPiece& piece) {
  return piece.columns ? piece.columns->count : stored_row_width(piece);
}

int64_t num_rows(const HubPiece& piece) {
  return piece.tensor.shape.num_elements() / std::max<int64_t>(stored_row_width(piece), 1);
}

int64_t row_width(const Shape& shape) { return shape.rank() >= 2 ? shape[shape.rank() - 1] : 1; }

Assembly whole(HubTensor tensor) {
  std::vector<HubTensor> one;
  one.push_back(std::move(tensor));
  return concatenated(std::move(one));
}

Assembly concatenated(std::vector<HubTensor> tensors) {
  Assembly assembly;
  int64_t target_row = 0;
  for (HubTensor& tensor : tensors) {
    const int64_t rows = num_rows(tensor.shape);
    assembly.push_back({.tensor = std::move(tensor), .runs = {{0, target_row, rows}}});
    target_row += rows;
  }
  return assembly;
}

Assembly permuted(HubTensor tensor, std::vector<RowRun> runs) {
  Assembly assembly;
  assembly.push_back({.tensor = std::move(tensor), .runs = std::move(runs)});
  return assembly;
}

Assembly stacked(int64_t count, const std::vector<HubTensor>& patterns) {
  std::vector<HubTensor> tensors;
  tensors.reserve(static_cast<size_t>(count) * patterns.size());
  for (int64_t index = 0; index < count; ++index) {
    for (const HubTensor& pattern : patterns) {
      tensors.push_back({with_index(pattern.name, index), pattern.shape});
    }
  }
  return concatenated(std::move(tensors));
}

}  // namespace heddle::checkpoint

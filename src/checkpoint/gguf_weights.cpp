// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <unordered_set>

#include <fmt/format.h>

#include "checkpoint/convert.h"
#include "checkpoint/readable.h"
#include "core/check.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kLargestBlock = 256;

// The dtype as which blocks are read if the caller requests no other.
constexpr DType kBlocksDType = DType::kBf16;

bool is_served(const GgufType& type) {
  return type.blocks.has_value() || (type.dtype && is_convertible(*type.dtype));
}

Status refuse_type(const GgufTensor& tensor) {
  return unimplemented(fmt::format(
      "tensor {} is stored as {}, which is not served; take the model's Q4_K_M file, or one of "
      "Q8_0, Q6_K, Q5_K_M, F16 or BF16",
      readable(tensor.name), tensor.type->name));
}

}  // namespace

Result<GgufWeights> GgufWeights::create(GgufModel model, std::vector<GgufSource> sources,
                                        const std::vector<std::string>& left_out) {
  GgufWeights weights(std::move(model));
  std::unordered_set<std::string_view> used(left_out.begin(), left_out.end());
  for (const std::string_view name : weights.model_.names()) {
    const GgufTensor& tensor = *weights.model_.find(name)->tensor;
    if (!is_served(*tensor.type)) return refuse_type(tensor);
  }
  for (GgufSource& source : sources) {
    const auto stored = weights.model_.find(source.stored);
    HEDDLE_CHECK(stored.has_value());
    used.insert(stored->tensor->name);
    HEDDLE_RETURN_IF_ERROR(weights.add(std::move(source)));
  }
  for (const std::string_view name : weights.model_.names()) {
    if (used.contains(name)) continue;
    HEDDLE_RETURN_IF_ERROR(weights.add({.hub = std::string(name),
                                        .stored = std::string(name),
                                        .shape = weights.model_.find(name)->tensor->shape}));
  }
  return weights;
}

Status GgufWeights::add(GgufSource source) {
  auto entry = std::make_unique<Entry>();
  entry->stored = *model_.find(source.stored);
  const Shape& stored = entry->stored.tensor->shape;
  // A vector of plain numbers is a column of rows with one element each.
  const bool is_row = stored.rank() > 1 || entry->stored.tensor->type->blocks;
  entry->width = is_row ? stored[stored.rank() - 1] : 1;
  const int64_t num_rows = source.shape.num_elements() / entry->width;
  int64_t last = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    last = std::max(last, source.order.stored_row(row));
  }
  int64_t last_column = 0;
  for (int64_t column = 0; column < entry->width; ++column) {
    last_column = std::max(last_column, source.columns.stored_row(column));
  }
  if (source.shape.num_elements() != num_rows * entry->width || last_column >= entry->width ||
      (last + 1) * entry->width > stored.num_elements()) {
    return invalid_argument(fmt::format("tensor {} is {}, which does not hold {} as {}",
                                        readable(source.stored), stored.to_string(),
                                        readable(source.hub), source.shape.to_string()));
  }
  entry->source = std::move(source);
  if (!by_name_.emplace(entry->source.hub, entry.get()).second) {
    return invalid_argument(fmt::format("{} is stored twice, the second time as tensor {}",
                                        readable(entry->source.hub),
                                        readable(entry->source.stored)));
  }
  entries_.push_back(std::move(entry));
  return ok_status();
}

quant::BlockRows GgufWeights::rows_of(const Entry& entry) const {
  return {.type = *entry.stored.tensor->type->blocks,
          .K = entry.width,
          .data = entry.stored.data,
          .order = entry.source.order};
}

std::optional<StoredWeight> GgufWeights::find(const WeightRequest& request) const {
  const auto found = by_name_.find(request.name);
  if (found == by_name_.end()) return std::nullopt;
  const Entry& entry = *found->second;
  const GgufType& type = *entry.stored.tensor->type;
  StoredWeight weight{.name = entry.source.hub,
                      .stored_dtype = type.name,
                      .dtype = type.blocks ? kBlocksDType : *type.dtype,
                      .shape = entry.source.shape};
  const bool as_stored =
      entry.source.change == GgufChange::kNone && entry.source.columns == quant::RowOrder();
  const bool packs = as_stored && !entry.source.as_numbers && entry.width > 1;
  if (!type.blocks && as_stored && entry.source.order == quant::RowOrder()) {
    weight.data = entry.stored.data;
  }
  if (type.blocks && packs) weight.blocks = rows_of(entry);
  return weight;
}

std::vector<std::string_view> GgufWeights::names() const {
  std::vector<std::string_view> names;
  names.reserve(entries_.size());
  for (const auto& entry : entries_) names.push_back(entry->source.hub);
  std::ranges::sort(names);
  return names;
}

void GgufWeights::read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
                       void* target) const {
  const Entry& entry = *by_name_.at(weight.name);
  const quant::RowOrder& columns = entry.source.columns;
  const int64_t together = columns == quant::RowOrder() ? entry.width : columns.inner;
  auto* out = static_cast<std::byte*>(target);
  while (count > 0) {
    const int64_t column = first % entry.width;
    const int64_t part = std::min(count, together - column % together);
    read_part(entry, first / entry.width, columns.stored_row(column), part, dtype, out);
    first += part;
    count -= part;
    out += bytes_of(dtype, part);
  }
}

// Reads elements [column, column + count) of a row in stored order, a block at a time.
void GgufWeights::read_part(const Entry& entry, int64_t row, int64_t column, int64_t count,
                            DType dtype, void* target) const {
  const GgufType& type = *entry.stored.tensor->type;
  const bool as_stored = !type.blocks && entry.source.change == GgufChange::kNone;
  const int64_t columns = type.blocks ? type.block.columns
                          : as_stored ? entry.width
                                      : kLargestBlock;
  const int64_t row_bytes = entry.width / type.block.columns * type.block.bytes;
  const std::byte* const bytes = entry.stored.data + entry.source.order.stored_row(row) * row_bytes;
  auto* out = static_cast<std::byte*>(target);
  std::array<float, kLargestBlock> values;
  while (count > 0) {
    const int64_t within = column % columns;
    const int64_t here = std::min(count, columns - within);
    const std::byte* const from = bytes + column / type.block.columns * type.block.bytes;
    if (as_stored) {
      convert_elements(from, *type.dtype, out, dtype, here);
    } else {
      if (type.blocks) {
        quant::dequantise_blocks(*type.blocks, from, 1, values.data());
      } else {
        convert_elements(from, *type.dtype, values.data() + within, DType::kF32, here);
      }
      for (float& value :
           std::span(values).subspan(static_cast<size_t>(within), static_cast<size_t>(here))) {
        if (entry.source.change == GgufChange::kOneAdded) value -= 1;
        if (entry.source.change == GgufChange::kNegatedExponent) value = std::log(-value);
      }
      convert_elements(values.data() + within, DType::kF32, out, dtype, here);
    }
    column += here;
    count -= here;
    out += bytes_of(dtype, here);
  }
}

std::vector<std::string> GgufWeights::notes() const {
  std::map<std::string_view, int64_t> rearranged;  // number of tensors whose elements are
                                                   // reordered, by block type
  for (const auto& entry : entries_) {
    const GgufType& type = *entry->stored.tensor->type;
    const bool is_whole = entry->source.columns == quant::RowOrder() && !entry->source.as_numbers;
    if (type.blocks && !is_whole) ++rearranged[type.name];
  }
  std::vector<std::string> notes;
  for (const auto& [name, count] : rearranged) {
    notes.push_back(fmt::format(
        "{} tensors of {} are dequantised while they load: the converter has rearranged them "
        "across "
        "their blocks; --quantization int4-g32 or int8 rounds them again to a packed format",
        count, name));
  }
  return notes;
}

}  // namespace heddle::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "quant/packed_rows.h"

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::quant {

namespace {

int64_t bytes_of(ScaleType type) {
  switch (type) {
    case ScaleType::kF32:
      return 4;
    case ScaleType::kBf16:
    case ScaleType::kF16:
      return 2;
    case ScaleType::kE8M0:
      return 1;
  }
  HEDDLE_CHECK(false && "unknown scale type");
}

const char* name_of(Code code) {
  switch (code) {
    case Code::kU4:
      return "int4";
    case Code::kU8:
      return "int8";
    case Code::kE2M1:
      return "mxfp4";
    case Code::kE4M3:
      return "fp8";
  }
  return "unknown";
}

const char* name_of(ScaleType type) {
  switch (type) {
    case ScaleType::kF32:
      return "float32";
    case ScaleType::kBf16:
      return "bfloat16";
    case ScaleType::kF16:
      return "float16";
    case ScaleType::kE8M0:
      return "power-of-two";
  }
  return "unknown";
}

}  // namespace

int64_t RowFormat::scale_bytes() const { return num_groups() * bytes_of(scale); }

bool RowFormat::same_layout(const RowFormat& other) const {
  const bool same_index =
      group_index == other.group_index || (group_index != nullptr && other.group_index != nullptr &&
                                           *group_index == *other.group_index);
  return code == other.code && scale == other.scale && K == other.K &&
         num_groups() == other.num_groups() &&
         (group_index != nullptr || group_size == other.group_size) &&
         has_zeros == other.has_zeros && (has_zeros || constant_zero == other.constant_zero) &&
         same_index;
}

std::string RowFormat::to_string() const {
  const std::string groups = group_index != nullptr ? "groups in activation order"
                             : group_size >= K      ? std::string("one scale a row")
                                                    : fmt::format("groups of {}", group_size);
  return fmt::format("{}, {}, {} scales{}", name_of(code), groups, name_of(scale),
                     has_zeros ? ", zero points" : "");
}

int64_t PackedWeight::num_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts) {
    bytes += part.plain.data != nullptr ? part.plain.num_bytes()
                                        : part.num_rows * part.packed.format.row_bytes();
  }
  return bytes;
}

int64_t stored_bytes(const TensorView& weight) {
  return weight.packed != nullptr ? weight.packed->num_bytes() : weight.num_bytes();
}

}  // namespace heddle::quant

// SPDX-License-Identifier: Apache-2.0
#include "runner/program/host_rows.h"

#include "core/check.h"
#include "core/dtype.h"

namespace heddle::runner {

namespace {

template <typename Scalar>
void convert(const MutableTensorView& from, float* to) {
  for (int64_t t = 0; t < from.shape[0]; ++t) {
    const auto* row = from.row<Scalar>(t);
    for (int64_t i = 0; i < from.shape[1]; ++i) *to++ = to_float(row[i]);
  }
}

}  // namespace

Status HostRows::fetch(device::Device& device, device::Stream& stream,
                       const MutableTensorView& rows) {
  rows_ = rows;
  if (device.kind() == device::DeviceKind::kCpu) {
    HEDDLE_CHECK(rows.dtype == DType::kF32);
    return {};
  }
  const int64_t num_bytes = bytes_of(rows.dtype, rows.shape[0] * rows.row_stride);
  if (!pinned_) pinned_.emplace(device, /*num_blocks=*/1);
  HEDDLE_ASSIGN_OR_RETURN(std::byte* const pinned, pinned_->begin(num_bytes));
  rows_.data = pinned;
  return stream.copy(pinned, rows.data, num_bytes);
}

void HostRows::settle() {
  if (rows_.dtype == DType::kF32) return;
  converted_.resize(static_cast<size_t>(rows_.num_elements()));
  if (rows_.dtype == DType::kBf16) {
    convert<Bf16>(rows_, converted_.data());
  } else {
    HEDDLE_CHECK(rows_.dtype == DType::kF16);
    convert<F16>(rows_, converted_.data());
  }
  rows_ = {converted_.data(), DType::kF32, rows_.shape};
}

}  // namespace heddle::runner

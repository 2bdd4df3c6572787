// SPDX-License-Identifier: Apache-2.0
// Host code that describes rows of bf16 to the copy engine (cuTensorMapEncodeTiled), in boxes of 64
// columns (128 bytes, swizzled) by box_rows rows. A map is 128 bytes in a kernel's parameters.
// Cost: a call of the driver that does not use the device. Called at each launch of a kernel for
// Hopper.
#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

#include "ops/cuda/sm90/tensor_map.h"

namespace heddle::ops::sm90 {

namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// Finds the driver's function at run time, so that the program starts without a driver.
EncodeTiled encode_tiled() {
  static const EncodeTiled kFunction = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &found);
    const bool ok = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return ok ? reinterpret_cast<EncodeTiled>(function) : nullptr;
  }();
  return kFunction;
}

}  // namespace

bool can_map(const TensorView& rows) {
  return rows.dtype == DType::kBf16 && rows.row_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && encode_tiled() != nullptr;
}

Status map_boxes(const TensorView& rows, int box_rows, CUtensorMap& map) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(rows.shape[1]),
                               static_cast<cuuint64_t>(rows.shape[0])};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(bytes_of(DType::kBf16, rows.row_stride))};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result =
      encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(rows.data), sizes,
                     strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return internal_error("cuTensorMapEncodeTiled refuses rows of " + std::to_string(rows.shape[1]) +
                        " numbers, code " + std::to_string(static_cast<int>(result)));
}

}  // namespace heddle::ops::sm90

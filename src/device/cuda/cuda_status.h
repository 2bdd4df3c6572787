// SPDX-License-Identifier: Apache-2.0
// Converts CUDA's error codes to Status. For sources that nvcc compiles.
#pragma once

#include <cuda_runtime_api.h>

#include <heddle/status.h>

namespace heddle::device {

// OK, or kDeviceLost with the call: "cudaMemcpyAsync: an illegal memory access was encountered".
Status cuda_status(cudaError_t error, const char* call);

}  // namespace heddle::device

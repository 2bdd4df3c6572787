// SPDX-License-Identifier: Apache-2.0
// CUDA's error codes as Status. For sources that nvcc compiles.
#pragma once

#include <cuda_runtime_api.h>

#include <heddle/status.h>

namespace heddle::device {

// ok, or kDeviceLost: "cudaMemcpyAsync: an illegal memory access was encountered".
Status cuda_status(cudaError_t error, const char* call);

}  // namespace heddle::device

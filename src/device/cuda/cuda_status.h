// SPDX-License-Identifier: Apache-2.0
// CUDA's error codes as Status. For sources that nvcc compiles.
#pragma once

#include <cuda_runtime_api.h>

#include <heddle/status.h>

namespace heddle::device {

// ok, or kDeviceLost: "cudaMemcpyAsync: an illegal memory access was encountered".
Status cuda_status(cudaError_t error, const char* call);

// After a launch: whether the kernel could be enqueued. What fails while it runs is seen by a later
// call, of this stream or another.
inline Status launch_status(const char* kernel) { return cuda_status(cudaGetLastError(), kernel); }

}  // namespace heddle::device

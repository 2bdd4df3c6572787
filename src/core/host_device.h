// SPDX-License-Identifier: Apache-2.0
// HEDDLE_HOST_DEVICE: marks an inline function that kernels call as well.
#pragma once

#ifdef __CUDACC__
#define HEDDLE_HOST_DEVICE __host__ __device__
#else
#define HEDDLE_HOST_DEVICE
#endif

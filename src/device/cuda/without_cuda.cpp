// SPDX-License-Identifier: Apache-2.0
// Compiled instead of cuda_device.cu in a build without CUDA.
#include "device/cuda/cuda_device.h"

namespace heddle::device {

Result<int> num_cuda_devices() { return unimplemented("this program was built without CUDA"); }

Result<std::unique_ptr<CudaDevice>> open_cuda_device(int) { return num_cuda_devices().status(); }

}  // namespace heddle::device
